// The tools of a request.
#pragma once

#include <memory>

#include "chapters/23_structured_output/tool_use.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"

namespace llm::serve {

// The tools that an answer may call; none also if tool_choice is "none".
struct ToolRequest {
    std::vector<std::string> definitions{};  // as JSON texts, for the chat template
    const JsonArray* list = nullptr;         // of the request
    const Json* choice = nullptr;            // tool_choice, if it names a tool
    ToolUse use{};
    std::string key{};  // of all of these, for the cache of grammars
};

// Reads tools, tool_choice and parallel_tool_calls, and makes the grammar of answers. They
// throw ApiError 400, which names the field.
ToolRequest read_tools(RequestFields& fields);
std::shared_ptr<const Grammar> grammar_of_tools(const ToolRequest& request);

// What the definition of a tool, a call and a choice have in common. They throw ApiError 400.
inline constexpr std::size_t max_list_size = 128;  // of tools, and of calls: OpenAI's limit
const JsonArray* find_list(RequestFields& fields, const std::string& name);  // or nullptr
std::string element_name(const std::string& list, std::size_t i);            // "tools[0]"
// The object "function" of {"type": "function", "function": {...}}, and its name. Other fields
// beside it are rejected, or ignored: what clients store with a call, also if it has no type.
enum class Extra { rejected, ignored };
RequestFields function_of(RequestFields& fields, Extra extra = Extra::rejected);
std::string read_function_name(RequestFields& function);

}  // namespace llm::serve
