// JSON as OpenAI's API answers it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/text/tool_call_text.hpp"

namespace llm::serve {

// A token with its log-probability. Its bytes need not be UTF-8.
struct TokenText {
    std::string bytes;
    double log_prob = 0;
};
struct TokenDetails {
    TokenText token;
    std::vector<TokenText> top{};  // the most likely tokens
    std::size_t text_offset = 0;   // characters of the answer before it
};

// A part of an answer, or all of it.
struct Choice {
    std::size_t index = 0;
    std::string text{};
    std::vector<TokenDetails> tokens{};  // if log-probabilities were asked for
    std::string finish_reason{};         // empty: it goes on
    std::vector<ToolCallPart> calls{};
};

// Adds the next part of an answer to those before it.
void append(Choice& whole, const Choice& part);

struct Usage {
    std::size_t prompt_tokens = 0, completion_tokens = 0;
};

// What is the same in all parts of an answer.
struct ResponseHead {
    bool chat = true;
    std::string id, model;
    std::int64_t created = 0;  // seconds since 1970
    bool log_probs = false;
    bool include_usage = false;  // in a stream
};

std::string response_json(const ResponseHead& head, const std::vector<Choice>& choices,
                          const Usage& usage);

// The chunks of a stream. The first chunk of a chat has the role; the last one has the usage
// and no choice. A part of an answer is one chunk, and one more for each part of a call.
std::string role_chunk_json(const ResponseHead& head, std::size_t index);
std::vector<std::string> chunks_json(const ResponseHead& head, const Choice& choice);
std::string usage_chunk_json(const ResponseHead& head, const Usage& usage);

// A server-sent event. Source: HTML Living Standard, section 9.2. JSON has no line ends.
std::string sse_event(const std::string& json);
inline constexpr const char* sse_done = "data: [DONE]\n\n";
inline constexpr const char* sse_comment = ":\n\n";  // clients skip it

std::string error_json(const ApiError& error);

// The model of a server, as its lists show it.
struct ListedModel {
    std::string name;
    std::size_t context_length = 0;
    std::int64_t created = 0;  // seconds since 1970
};
std::string model_json(const ListedModel& model);
std::string models_json(const ListedModel& model);
std::string empty_list_json();  // a page of a list without entries

}  // namespace llm::serve
