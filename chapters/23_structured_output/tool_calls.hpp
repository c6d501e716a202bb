// Chapter 23, file 6 of 7: calls of tools in a generated text, and the messages with results.
#pragma once

#include <string>
#include <vector>

#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "common/files/json.hpp"

namespace llm {

// A function that a model may call, and the JSON schema of its arguments, an object. What no
// grammar enforces is an error, or a description of the arguments.
struct Tool {
    std::string name, description;
    Json parameters;
    Unenforced unenforced = Unenforced::rejected;
};
Tool calculator_tool();

// The calls in a generated text, and the text around them. A call is
//   <tool_call>
//   {"name": "calculator", "arguments": {"expression": "12 + 30"}}
//   </tool_call>
// as ChatML writes Message::tool_calls. Throws ValueError if one has no end or is no such
// object. Source: Hermes function calling (Nous Research); the chat templates of Qwen 2.5 and
// Qwen 3.
struct ParsedAnswer {
    std::string content;
    std::vector<ToolCall> tool_calls;
};
ParsedAnswer parse_tool_calls(const std::string& text);
inline const std::string tool_call_begin = "<tool_call>", tool_call_end = "</tool_call>";

// The grammar of one call of one of these tools. Throws ValueError as add_json_schema, and if
// there are none. add_tool_call adds the rule of what stands after <tool_call>,
// add_arguments_schema that of the arguments of one tool.
Grammar tool_call_grammar(const std::vector<Tool>& tools);
RuleIndex add_tool_call(GrammarRules& rules, const std::vector<Tool>& tools);
RuleIndex add_arguments_schema(GrammarRules& rules, const Tool& tool);

// Runs a call in this program: the result, or "error: ...", for the model to read in a message
// of the role "tool". Throws ValueError if the tool is not known.
std::string run_tool(const ToolCall& call);

}  // namespace llm
