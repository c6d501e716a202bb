#include "chapters/apps/serve/api/tool_request.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "chapters/21_serving/constrained/json_schema.hpp"
#include "chapters/apps/serve/api/api_error.hpp"
#include "common/files/mapped_file.hpp"

namespace llm::serve {

using nlohmann::json;

std::string element_name(const std::string& list, std::size_t i) {
    return list + "[" + std::to_string(i) + "]";
}

const json* find_list(RequestFields& fields, const std::string& name) {
    const json* list = fields.find(name);
    const std::string full_name = fields.full_name(name);
    if (!list) return nullptr;
    if (!list->is_array()) throw invalid_request(full_name + " must be an array", full_name);
    if (list->size() > max_list_size)
        throw invalid_request(
            full_name + " must have at most " + std::to_string(max_list_size) + " elements",
            full_name);
    return list->empty() ? nullptr : list;
}

std::string read_function_name(RequestFields& function) {
    const std::string name = function.text("name");
    const auto is_allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    };
    if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), is_allowed))
        throw invalid_request(function.full_name("name") +
                                  " must have from 1 to 64 characters, each a letter, a digit, "
                                  "\"_\" or \"-\"",
                              function.full_name("name"));
    return name;
}

RequestFields function_of(RequestFields& fields) {
    const std::string type = fields.full_name("type");
    if (fields.text("type") != "function")
        throw invalid_request(type + " must be function", type, "unsupported_parameter");
    const std::string name = fields.full_name("function");
    const json* function = fields.find("function");
    if (!function) throw invalid_request(name + " is required", name);
    fields.reject_unread();
    return RequestFields(*function, name);
}

namespace {

// A function without parameters has no arguments.
Json parameters_of(const Json& definition) {
    const Json* parameters = definition.find("function")->find("parameters");
    const bool is_absent =
        !parameters || parameters->as<std::nullptr_t>() ||
        (parameters->as<JsonObject>() && parameters->as<JsonObject>()->empty());
    if (!is_absent) return *parameters;
    return parse_json(R"({"type": "object", "properties": {}})", "parameters");
}

// Checks one definition; adds the rules of its schema, which are limited for all tools
// together.
Tool read_tool(const json& value, const Json& definition, const std::string& place,
               GrammarRules& rules) {
    RequestFields fields(value, place);
    RequestFields function = function_of(fields);
    Tool tool{read_function_name(function), "", {}};
    if (function.find("description")) tool.description = function.text("description");
    function.flag_or("strict", true);  // arguments follow the schema in any case
    function.find("parameters");
    function.reject_unread();

    tool.parameters = parameters_of(definition);
    const std::string name = function.full_name("parameters");
    const Json* type = tool.parameters.find("type");
    if (!type || !type->as<std::string>() || *type->as<std::string>() != "object")
        throw invalid_request(name + " must be a schema of the type object", name);
    try {
        add_json_schema(rules, tool.parameters);
    } catch (const ValueError& error) {
        throw invalid_request(name + ": " + error.what(), name);
    }
    return tool;
}

std::vector<Tool> read_definitions(const json& list, const JsonArray& definitions) {
    std::vector<Tool> tools;
    GrammarRules rules;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string place = element_name("tools", i);
        tools.push_back(read_tool(list[i], definitions[i], place, rules));
        for (std::size_t k = 0; k < i; ++k)
            if (tools[k].name == tools[i].name)
                throw invalid_request(place + ".function.name is used twice: " + tools[i].name,
                                      place + ".function.name");
    }
    return tools;
}

// The one tool that a tool_choice names.
std::vector<Tool> named_tool(const json& choice, const std::vector<Tool>& tools) {
    RequestFields fields(choice, "tool_choice");
    RequestFields function = function_of(fields);
    const std::string name = read_function_name(function);
    function.reject_unread();
    for (const Tool& tool : tools)
        if (tool.name == name) return {tool};
    throw invalid_request("tool_choice.function.name: there is no tool " + name,
                          "tool_choice.function.name");
}

enum class ToolChoice { none, automatic, required };
ToolChoice tool_choice_named(const json& choice) {
    if (choice == "none") return ToolChoice::none;
    if (choice == "auto") return ToolChoice::automatic;
    if (choice == "required" || choice.is_object()) return ToolChoice::required;
    throw invalid_request("tool_choice must be none, auto, required or an object",
                          "tool_choice");
}

std::shared_ptr<const Grammar> grammar_of(const std::vector<Tool>& tools,
                                          const ToolUse& use) try {
    return std::make_shared<const Grammar>(tool_use_grammar(tools, use));
} catch (const ValueError& error) {
    throw invalid_request(std::string("tools: ") + error.what(), "tools");
}

}  // namespace

ToolRequest read_tools(RequestFields& fields, std::string_view body) {
    const json* list = find_list(fields, "tools");
    const json* choice = fields.find("tool_choice");
    ToolChoice how = choice ? tool_choice_named(*choice) : ToolChoice::automatic;
    ToolUse use{how == ToolChoice::required, fields.flag_or("parallel_tool_calls", true)};
    if (!list && use.required) throw invalid_request("tool_choice needs tools", "tool_choice");
    if (!list) return {};

    const Json tree = parse_json(body, "the body");
    const JsonArray& definitions = *tree.find("tools")->as<JsonArray>();
    std::vector<Tool> tools = read_definitions(*list, definitions);
    if (how == ToolChoice::none) return {};
    if (choice && choice->is_object()) {
        tools = named_tool(*choice, tools);
        use.parallel = false;
    }
    ToolRequest request;
    for (const Json& definition : definitions)
        request.definitions.push_back(spaced_json_text(definition));
    request.grammar = grammar_of(tools, use);
    return request;
}

}  // namespace llm::serve
