#include "chapters/apps/serve/api/chat_messages.hpp"

#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/tool_request.hpp"
#include "chapters/models/chat/chat_formats.hpp"
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
    std::string text = function.text("arguments");
    if (text.empty()) text = "{}";  // of a call without arguments
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
    RequestFields function = function_of(fields, Extra::ignored);
    return {read_function_name(function), read_arguments(function)};
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

// The text of a message: a string, or parts with a text. (Open Responses calls them input_text
// and output_text.)
std::string content_text(RequestFields& message) {
    const Json* content = message.find("content");
    const JsonArray* parts = content ? content->as<JsonArray>() : nullptr;
    if (!parts) return message.text("content");
    std::string text;
    for (std::size_t i = 0; i < parts->size(); ++i) {
        const std::string name = message.full_name("content[" + std::to_string(i) + "]");
        RequestFields part((*parts)[i], name);
        const std::string type = part.text("type");
        if (type == "refusal")
            text += part.text("refusal");
        else if (type == "text" || type == "input_text" || type == "output_text")
            text += part.text("text");
        else
            throw invalid_request(name + " of type " + escaped(type) + " is not supported",
                                  name, "unsupported_parameter");
    }
    return text;
}

// Clients store more in a message than its text and send it back: names, ids, what they parsed
// or counted. That changes no answer. These fields would.
void reject_unsupported(RequestFields& message) {
    for (const char* asked : {"audio", "images", "function_call", "prefix", "partial"})
        message.allow_only(asked, {false, "", JsonArray{}, JsonObject{}});
}

// The reasoning before an answer, for the templates that write it: Qwen3's. The other ones have
// no place for it.
std::string reasoning_of(RequestFields& message, const ChatTemplate& chat_template) {
    const Json* value = message.find("reasoning_content");
    const std::string* text = value ? value->as<std::string>() : nullptr;
    if (!text || text->empty() || chat_template.format != &models::qwen3_format) return "";
    return "<think>\n" + *text + "\n</think>\n\n";
}

Message read_message(const Json& value, const std::string& name,
                     const ChatTemplate& chat_template, OpenCalls& calls) {
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
    if (role == "assistant") message.content = reasoning_of(fields, chat_template);
    // An answer may have no content: it was a call, was refused, or is empty.
    if (role != "assistant" || fields.find("content")) message.content += content_text(fields);
    reject_unsupported(fields);
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
        messages.push_back(
            read_message((*list)[i], element_name("messages", i), chat_template, calls));
    calls.expect_none("messages");
    return messages;
}

}  // namespace llm::serve
