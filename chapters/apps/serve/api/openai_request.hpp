// The body of a POST to /v1/completions or /v1/chat/completions, as OpenAI defines it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/11_generation/sampling.hpp"
#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/23_structured_output/token_mask.hpp"
#include "chapters/apps/serve/api/grammar_cache.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"
#include "chapters/apps/serve/api/sampling_fields.hpp"
#include "chapters/models/chat/bad_words.hpp"
#include "common/files/json.hpp"

namespace llm::serve {

// What a request is checked against, and how its text becomes tokens.
struct ApiModel {
    std::string name;
    Tokenizer tokenizer;
    std::optional<ChatTemplate> chat_template{};  // none: a base model
    std::vector<Id> eos_token_ids{};              // with the token that ends an answer
    models::BadWords bad_words{};
    std::shared_ptr<const TokenTrie> trie{};  // of the tokenizer, for a grammar
    std::shared_ptr<GrammarCache> grammars = std::make_shared<GrammarCache>();
    std::size_t context_length = 0;     // tokens of a prompt and its answer
    std::size_t max_prompt_tokens = 0;  // less than context_length
    SamplingConfig sampling{};          // of requests that do not say otherwise
};

// A request after validation. Each prompt gets n answers.
struct CompletionRequest {
    bool chat = true;
    std::vector<std::vector<Id>> prompts{};
    std::size_t n = 1;
    std::size_t max_new_tokens = 0;  // of each answer
    SamplingConfig sampling{};
    LogitChanges logit_changes{};
    std::optional<std::uint32_t> seed{};  // none: the server chooses one
    std::vector<std::string> stop{};
    bool stream = false, include_usage = false;
    std::optional<std::size_t> top_logprobs{};  // none: no log-probabilities
    std::shared_ptr<const Grammar> grammar{};   // of the answer; none: any text
    std::vector<std::string> tools{};           // definitions; if there are any, it may call
};

inline constexpr std::size_t max_choices = 16;  // of a request: prompts times n

// They throw ApiError: 400, which names the field, if the body is no JSON object or if a field
// is wrong, unknown or asks for what is not supported; 404 for another model.
CompletionRequest parse_chat_request(std::string_view body, const ApiModel& model);
CompletionRequest parse_completion_request(std::string_view body, const ApiModel& model);

// The steps of parse_chat_request. read_model rejects another model than the served one.
Json parse_body(std::string_view body);  // an object
void read_model(RequestFields& fields, const std::string& served);
CompletionRequest read_chat_request(const Json& object, const ApiModel& model);

}  // namespace llm::serve
