#include "chapters/apps/serve/api/tool_request.hpp"

#include <algorithm>

#include "chapters/apps/serve/api/api_error.hpp"

namespace llm::serve {

std::string element_name(const std::string& list, std::size_t i) {
    return list + "[" + std::to_string(i) + "]";
}

const JsonArray* find_list(RequestFields& fields, const std::string& name) {
    const Json* value = fields.find(name);
    if (!value) return nullptr;
    const std::string full_name = fields.full_name(name);
    const JsonArray* list = value->as<JsonArray>();
    if (!list) throw invalid_request(full_name + " must be an array", full_name);
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

RequestFields function_of(RequestFields& fields, Extra extra) {
    const std::string type = fields.full_name("type");
    const bool is_missing = extra == Extra::ignored && !fields.find("type");
    if (!is_missing && fields.text("type") != "function")
        throw invalid_request(type + " must be function", type, "unsupported_parameter");
    const std::string name = fields.full_name("function");
    const Json* function = fields.find("function");
    if (!function) throw invalid_request(name + " is required", name);
    if (extra == Extra::rejected) fields.reject_unread();
    return RequestFields(*function, name);
}

namespace {

// A function without parameters has no arguments.
Json parameters_of(RequestFields& function) {
    const Json* parameters = function.find("parameters");
    const JsonObject* members = parameters ? parameters->as<JsonObject>() : nullptr;
    if (parameters && !(members && members->empty())) return *parameters;
    return parse_json(R"({"type": "object", "properties": {}})", "parameters");
}

// Checks one definition; adds the rules of its schema, which are limited for all tools
// together.
Tool read_tool(const Json& definition, const std::string& place, GrammarRules& rules) {
    RequestFields fields(definition, place);
    RequestFields function = function_of(fields);
    Tool tool{read_function_name(function), "", {}, Unenforced::rejected};
    if (function.find("description")) tool.description = function.text("description");
    // Arguments follow the schema in any case. Without "strict", what no grammar enforces is a
    // description.
    const bool is_strict = function.flag_or("strict", false);
    tool.unenforced = is_strict ? Unenforced::rejected : Unenforced::ignored;
    tool.parameters = parameters_of(function);
    function.reject_unread();

    const std::string name = function.full_name("parameters");
    try {
        add_arguments_schema(rules, tool);
    } catch (const ValueError& error) {
        throw invalid_request(name + ": " + error.what(), name);
    }
    return tool;
}

std::vector<Tool> read_definitions(const JsonArray& definitions) {
    std::vector<Tool> tools;
    GrammarRules rules;
    for (std::size_t i = 0; i < definitions.size(); ++i) {
        const std::string place = element_name("tools", i);
        tools.push_back(read_tool(definitions[i], place, rules));
        for (std::size_t k = 0; k < i; ++k)
            if (tools[k].name == tools[i].name)
                throw invalid_request(place + ".function.name is used twice: " + tools[i].name,
                                      place + ".function.name");
    }
    return tools;
}

// The one tool that a tool_choice names.
std::vector<Tool> named_tool(const Json& choice, const std::vector<Tool>& tools) {
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
ToolChoice tool_choice_named(const Json& choice) {
    const std::string* name = choice.as<std::string>();
    if (name && *name == "none") return ToolChoice::none;
    if (name && *name == "auto") return ToolChoice::automatic;
    if ((name && *name == "required") || choice.as<JsonObject>()) return ToolChoice::required;
    throw invalid_request("tool_choice must be none, auto, required or an object",
                          "tool_choice");
}

}  // namespace

ToolRequest read_tools(RequestFields& fields) {
    const JsonArray* definitions = find_list(fields, "tools");
    const Json* choice = fields.find("tool_choice");
    ToolChoice how = choice ? tool_choice_named(*choice) : ToolChoice::automatic;
    ToolUse use{how == ToolChoice::required, fields.flag_or("parallel_tool_calls", true)};
    if (!definitions && use.required)
        throw invalid_request("tool_choice needs tools", "tool_choice");
    if (!definitions) return {};

    if (how == ToolChoice::none) {
        read_definitions(*definitions);
        return {};
    }
    ToolRequest request{{}, definitions, choice, use, {}};
    for (const Json& definition : *definitions) {
        request.definitions.push_back(spaced_json_text(definition));
        request.key += request.definitions.back() + "\n";
    }
    request.key += (choice ? json_text(*choice) : "") + (use.parallel ? "" : " alone");
    return request;
}

std::shared_ptr<const Grammar> grammar_of_tools(const ToolRequest& request) {
    std::vector<Tool> tools = read_definitions(*request.list);
    ToolUse use = request.use;
    if (request.choice && request.choice->as<JsonObject>()) {
        tools = named_tool(*request.choice, tools);
        use.parallel = false;
    }
    try {
        return std::make_shared<const Grammar>(tool_use_grammar(tools, use));
    } catch (const ValueError& error) {
        throw invalid_request(std::string("tools: ") + error.what(), "tools");
    }
}

}  // namespace llm::serve
