#include "chapters/apps/serve/api/chat_messages.hpp"

#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/tool_request.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"

namespace llm::serve {
namespace {

// The fields of messages that have to do with tool calls, in their order.
class OpenCalls {
 public:
    // `spaced` writes arguments as Python does; otherwise they stay as they are.
    explicit OpenCalls(bool spaced) : spaced_(spaced) {}

    std::vector<ToolCall> read_calls(RequestFields& message);
    void read_result(RequestFields& message);
    // Before a message of another role, and at the end.
    void expect_none(const std::string& place) const;

 private:
    ToolCall read_call(const Json& value, const std::string& name);
    std::string read_arguments(RequestFields& function) const;

    bool spaced_;
    std::set<std::string> ids_{};  // of calls that have no result yet
};

std::string OpenCalls::read_arguments(RequestFields& function) const {
    const std::string name = function.full_name("arguments");
    const std::string text = function.text("arguments");
    try {
        const Json arguments = parse_json(text, name);
        if (!arguments.as<JsonObject>())
            throw invalid_request(name + " must be a JSON object", name);
        return spaced_ ? spaced_json_text(arguments) : text;
    } catch (const FileError& error) {
        throw invalid_request(error.what(), name);
    }
}

ToolCall OpenCalls::read_call(const Json& value, const std::string& name) {
    RequestFields fields(value, name);
    const std::string id = fields.text("id");
    if (id.empty() || id.size() > 100)
        throw invalid_request(name + ".id must have from 1 to 100 bytes", name + ".id");
    if (!ids_.insert(id).second)
        throw invalid_request(name + ".id is used twice", name + ".id");
    RequestFields function = function_of(fields);
    ToolCall call{read_function_name(function), read_arguments(function)};
    function.reject_unread();
    return call;
}

std::vector<ToolCall> OpenCalls::read_calls(RequestFields& message) {
    const std::string name = message.full_name("tool_calls");
    std::vector<ToolCall> calls;
    if (const JsonArray* list = find_list(message, "tool_calls"))
        for (std::size_t i = 0; i < list->size(); ++i)
            calls.push_back(read_call((*list)[i], element_name(name, i)));
    return calls;
}

void OpenCalls::read_result(RequestFields& message) {
    const std::string id = message.text("tool_call_id");
    const std::string name = message.full_name("tool_call_id");
    if (ids_.erase(id) == 0)
        throw invalid_request(name + " belongs to no call of the last answer", name);
}

void OpenCalls::expect_none(const std::string& place) const {
    if (!ids_.empty())
        throw invalid_request(place + ": the call " + *ids_.begin() + " has no result", place);
}

// The text of a message: a string, or parts of type "text".
std::string content_text(RequestFields& message) {
    const Json* content = message.find("content");
    const JsonArray* parts = content ? content->as<JsonArray>() : nullptr;
    if (!parts) return message.text("content");
    std::string text;
    for (std::size_t i = 0; i < parts->size(); ++i) {
        const std::string name = message.full_name("content[" + std::to_string(i) + "]");
        RequestFields part((*parts)[i], name);
        if (const std::string type = part.text("type"); type != "text")
            throw invalid_request(name + " of type " + escaped(type) + " is not supported",
                                  name, "unsupported_parameter");
        text += part.text("text");
        part.reject_unread();
    }
    return text;
}

Message read_message(const Json& value, const std::string& name, OpenCalls& calls) {
    RequestFields fields(value, name);
    Message message{fields.text("role"), ""};
    std::string& role = message.role;
    if (role == "developer") role = "system";  // OpenAI's newer name
    if (role != "system" && role != "user" && role != "assistant" && role != "tool")
        throw invalid_request(name + ".role must be system, developer, user, assistant or tool",
                              name + ".role");
    if (role == "tool")
        calls.read_result(fields);
    else
        calls.expect_none(name);
    if (role == "assistant")
        message.tool_calls = calls.read_calls(fields);
    else
        fields.allow_only("tool_calls", {JsonArray{}});
    if (message.tool_calls.empty() || fields.find("content"))
        message.content = content_text(fields);
    // What an answer has, for clients that send it back.
    fields.allow_only("annotations", {JsonArray{}});
    for (const char* absent : {"refusal", "audio", "function_call", "reasoning_content"})
        fields.allow_only(absent, {});
    fields.reject_unread();
    return message;
}

}  // namespace

std::vector<Message> read_messages(RequestFields& fields, const ChatTemplate& chat_template) {
    const Json* value = fields.find("messages");
    const JsonArray* list = value ? value->as<JsonArray>() : nullptr;
    if (!list || list->empty())
        throw invalid_request("messages must be an array with at least one message",
                              "messages");
    // Qwen 2.5's template writes arguments with Jinja's tojson; Qwen3's leaves text as it is.
    OpenCalls calls(chat_template.format == &chatml_format &&
                    chat_template.tools_in_system_message);
    std::vector<Message> messages;
    for (std::size_t i = 0; i < list->size(); ++i)
        messages.push_back(read_message((*list)[i], element_name("messages", i), calls));
    calls.expect_none("messages");
    return messages;
}

}  // namespace llm::serve
