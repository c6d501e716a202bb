#include "chapters/23_structured_output/tool_calls.hpp"

#include "chapters/23_structured_output/calculator.hpp"
#include "chapters/23_structured_output/json_rules.hpp"
#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

ToolCall parse_call(const std::string& text) try {
    const Json call = parse_json(text, "tool call");
    const Json *name = call.find("name"), *arguments = call.find("arguments");
    require(name && name->as<std::string>(), "tool call: expected a name, got {}", text);
    require(arguments && arguments->as<JsonObject>(),
            "tool call: expected an object of arguments, got {}", text);
    require(call.as<JsonObject>()->size() == 2,
            "tool call: expected name and arguments only, got {}", text);
    return {*name->as<std::string>(), json_text(*arguments)};
} catch (const FileError& error) {
    throw ValueError(error.what());
}

}  // namespace

Tool calculator_tool() {
    return {"calculator", "Computes sums, differences, products and quotients.",
            parse_json(R"({"type": "object",
                           "properties": {"expression": {"type": "string", "maxLength": 100}},
                           "required": ["expression"], "additionalProperties": false})",
                       "calculator")};
}

ParsedAnswer parse_tool_calls(const std::string& text) {
    ParsedAnswer answer;
    std::size_t at = 0;
    while (true) {
        const std::size_t begin = text.find(tool_call_begin, at);
        answer.content += text.substr(at, begin - at);
        if (begin == text.npos) return answer;
        const std::size_t call = begin + tool_call_begin.size(),
                          end = text.find(tool_call_end, call);
        require(end != text.npos, "tool call: {} has no {}", tool_call_begin, tool_call_end);
        answer.tool_calls.push_back(parse_call(text.substr(call, end - call)));
        at = end + tool_call_end.size();
    }
}

RuleIndex add_arguments_schema(GrammarRules& rules, const Tool& tool) {
    return add_json_schema(rules, tool.parameters, {tool.unenforced, "object"});
}

RuleIndex add_tool_call(GrammarRules& rules, const std::vector<Tool>& tools) {
    require(!tools.empty(), "tool call: there are no tools");
    std::vector<Sequence> calls;
    for (const Tool& tool : tools)
        calls.push_back(joined({literal("{\"name\": " + json_text({tool.name})),
                                literal(", \"arguments\": "),
                                {add_arguments_schema(rules, tool)},
                                literal("}")}));
    const RuleIndex call = rules.add("call", calls);
    return rules.add("tool call",
                     {joined({literal("\n"), {call}, literal("\n" + tool_call_end)})});
}

Grammar tool_call_grammar(const std::vector<Tool>& tools) {
    GrammarRules rules;
    const RuleIndex call = add_tool_call(rules, tools);
    const RuleIndex root = rules.add("text", {joined({literal(tool_call_begin), {call}})});
    return Grammar(std::move(rules), root);
}

std::string run_tool(const ToolCall& call) {
    require(call.name == calculator_tool().name, "tool call: there is no tool '{}'", call.name);
    try {
        const Json arguments = parse_json(call.arguments, "arguments");
        const Json* expression = arguments.find("expression");
        require(expression && expression->as<std::string>(),
                "calculator: expected an expression");
        return calculator_text(evaluate_expression(*expression->as<std::string>()));
    } catch (const FileError& error) {
        return std::string("error: ") + error.what();
    } catch (const ValueError& error) {
        return std::string("error: ") + error.what();
    }
}

}  // namespace llm
