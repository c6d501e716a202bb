#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"
#include "chapters/apps/serve/api/responses.hpp"
#include "common/files/unicode.hpp"

namespace llm::serve {
namespace {

void copy(RequestFields& from, const char* name, const char* new_name, JsonObject& to) {
    if (const Json* value = from.find(name)) to.emplace_back(new_name, *value);
}

// The messages of the items. Calls belong to the answer before them.
class ItemMessages {
 public:
    void add(const Json& value, const std::string& place) {
        RequestFields item(value, place);
        const std::string type = item.find("type") ? item.text("type") : "message";
        if (type == "reasoning") return;  // of an earlier answer
        if (type == "function_call") {
            const JsonObject function = {{"name", item.text("name")},
                                         {"arguments", item.text("arguments")}};
            calls_.emplace_back(
                JsonObject{{"id", item.text("call_id")}, {"function", function}});
            return;
        }
        end_calls();
        if (type == "function_call_output") {
            JsonObject message = {{"role", "tool"}, {"tool_call_id", item.text("call_id")}};
            copy(item, "output", "content", message);
            messages_.emplace_back(message);
        } else if (type == "message") {
            messages_.push_back(value);
        } else {
            throw invalid_request(place + " of type " + escaped(type) + " is not supported",
                                  place, "unsupported_parameter");
        }
    }
    JsonArray take() {
        end_calls();
        return std::move(messages_);
    }

 private:
    void end_calls() {
        if (calls_.empty()) return;
        const Json* role = messages_.empty() ? nullptr : messages_.back().find("role");
        if (!role || *role != Json("assistant"))
            messages_.emplace_back(JsonObject{{"role", "assistant"}});
        JsonObject message = *messages_.back().as<JsonObject>();
        message.emplace_back("tool_calls", std::exchange(calls_, {}));
        messages_.back() = message;
    }
    JsonArray messages_{}, calls_{};
};

JsonArray messages_of(RequestFields& fields) {
    ItemMessages messages;
    if (const Json* text = fields.find("instructions"))
        messages.add(JsonObject{{"role", "system"}, {"content", *text}}, "instructions");
    const Json* input = fields.find("input");
    if (const JsonArray* items = input ? input->as<JsonArray>() : nullptr)
        for (std::size_t i = 0; i < items->size(); ++i)
            messages.add((*items)[i], "input[" + std::to_string(i) + "]");
    else
        messages.add(JsonObject{{"role", "user"}, {"content", fields.text("input")}}, "input");
    return messages.take();
}

// {"type": "function", "name": ...} becomes {"type": "function", "function": {"name": ...}}.
Json nested(const Json& value, const std::string& place, const char* inside) {
    const RequestFields is_object(value, place);
    JsonObject outer, inner;
    for (const auto& [key, member] : *value.as<JsonObject>())
        (key == "type" ? outer : inner).emplace_back(key, member);
    outer.emplace_back(inside, inner);
    return outer;
}

void add_tools(RequestFields& fields, JsonObject& chat) {
    const Json* tools = fields.find("tools");
    if (const JsonArray* list = tools ? tools->as<JsonArray>() : nullptr) {
        JsonArray functions;
        for (const Json& tool : *list) functions.push_back(nested(tool, "tools", "function"));
        chat.emplace_back("tools", functions);
    }
    if (const Json* choice = fields.find("tool_choice"))
        chat.emplace_back("tool_choice", choice->as<JsonObject>()
                                             ? nested(*choice, "tool_choice", "function")
                                             : *choice);
}

void add_text(RequestFields& fields, JsonObject& chat) {
    const Json* value = fields.find("text");
    if (!value) return;
    RequestFields text(*value, "text");
    copy(text, "verbosity", "verbosity", chat);
    const Json* format = text.find("format");
    text.reject_unread();
    const Json* type = format ? format->find("type") : nullptr;
    if (format)
        chat.emplace_back("response_format", type && *type == Json("json_schema")
                                                 ? nested(*format, "text.format", "json_schema")
                                                 : *format);
}

// Values that have no effect here; others are not supported.
void read_neutral(RequestFields& fields, JsonObject& chat) {
    if (const Json* value = fields.find("reasoning")) {
        RequestFields reasoning(*value, "reasoning");
        copy(reasoning, "effort", "reasoning_effort", chat);
    }
    fields.flag_or("store", false);
    fields.allow_only("include", {JsonArray{}, JsonArray{"reasoning.encrypted_content"}});
    fields.allow_only("truncation", {"disabled", "auto"});
    fields.allow_only("background", {false});
    fields.allow_only("top_logprobs", {0});
    for (const char* name : {"previous_response_id", "conversation", "prompt"})
        fields.allow_only(name, {});
}

}  // namespace

CompletionRequest parse_responses_request(std::string_view body, const ApiModel& model) {
    const Json object = parse_body(body);
    RequestFields fields(object);
    JsonObject chat = {{"messages", messages_of(fields)}};
    add_tools(fields, chat);
    add_text(fields, chat);
    read_neutral(fields, chat);
    copy(fields, "max_output_tokens", "max_completion_tokens", chat);
    for (const char* same :
         {"model", "stream", "temperature", "top_p", "metadata", "parallel_tool_calls", "user",
          "presence_penalty", "frequency_penalty", "service_tier", "safety_identifier",
          "prompt_cache_key", "prompt_cache_retention"})
        copy(fields, same, same, chat);
    fields.reject_unread();
    return read_chat_request(chat, model);
}

}  // namespace llm::serve
