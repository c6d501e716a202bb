#include "chapters/apps/serve/api/responses.hpp"

#include "common/files/unicode.hpp"

namespace llm::serve {

ResponseItems::ResponseItems(const ResponseHead& head, std::string_view body)
    : head_(head), request_(json::parse(body)), response_(make_response("in_progress")) {}

// The response, with the settings of its request.
ResponseItems::json ResponseItems::make_response(const char* status) const {
    json response = {
        {"id", head_.id},       {"object", "response"}, {"created_at", head_.created},
        {"status", status},     {"error", nullptr},     {"incomplete_details", nullptr},
        {"model", head_.model}, {"output", output_},    {"usage", nullptr},
        {"store", false}};
    const json defaults = {{"instructions", nullptr},
                           {"max_output_tokens", nullptr},
                           {"metadata", json::object()},
                           {"parallel_tool_calls", true},
                           {"temperature", 1.0},
                           {"text", {{"format", {{"type", "text"}}}}},
                           {"tool_choice", "auto"},
                           {"tools", json::array()},
                           {"top_p", 1.0},
                           {"truncation", "disabled"},
                           {"previous_response_id", nullptr}};
    for (const auto& [name, value] : defaults.items()) {
        const bool given = request_.contains(name) && !request_[name].is_null();
        response[name] = given ? request_[name] : value;
    }
    return response;
}

std::string ResponseItems::event(const char* type, const json& members) {
    json event = {{"type", type}, {"sequence_number", num_events_++}};
    event.update(members);
    return std::string("event: ") + type + "\n" + sse_event(event.dump());
}

std::string ResponseItems::item_event(const char* type, json members) {
    members["output_index"] = output_.size() - 1;
    if (!members.contains("item")) members["item_id"] = output_.back()["id"];
    const bool is_text = std::string_view(type).find("text") != std::string_view::npos;
    if (is_text || members.contains("part")) members["content_index"] = 0;
    return event(type, members);
}

// Begins an item, whose id is that of the response and its number.
std::string ResponseItems::open(const char* kind, json item) {
    const std::string number =
        head_.id.substr(head_.id.find('_')) + "-" + std::to_string(output_.size());
    item["id"] = kind + number;
    item["status"] = "in_progress";
    if (item.contains("name")) item["call_id"] = "call" + number;
    output_.push_back(item);
    is_open_ = true;
    return item_event("response.output_item.added", {{"item", item}});
}

std::string ResponseItems::close(const char* status) {
    if (!is_open_) return "";
    is_open_ = false;
    json& item = output_.back();
    item["status"] = status;
    std::string events;
    if (item["type"] == "message") {
        const json& part = item["content"][0];
        events = item_event("response.output_text.done",
                            {{"text", part["text"]}, {"logprobs", json::array()}});
        events += item_event("response.content_part.done", {{"part", part}});
    } else {
        events = item_event("response.function_call_arguments.done",
                            {{"name", item["name"]}, {"arguments", item["arguments"]}});
    }
    return events + item_event("response.output_item.done", {{"item", item}});
}

std::string ResponseItems::add_text(const std::string& text) {
    std::string events;
    if (!is_open_ || output_.back()["type"] != "message") {
        events = close("completed");
        events += open(
            "msg", {{"type", "message"}, {"role", "assistant"}, {"content", json::array()}});
        const json part = {{"type", "output_text"},
                           {"text", ""},
                           {"annotations", json::array()},
                           {"logprobs", json::array()}};
        events += item_event("response.content_part.added", {{"part", part}});
        output_.back()["content"].push_back(part);
    }
    output_.back()["content"][0]["text"].get_ref<std::string&>() += text;
    if (text.empty()) return events;
    return events + item_event("response.output_text.delta",
                               {{"delta", text}, {"logprobs", json::array()}});
}

std::string ResponseItems::add_call(const ToolCallPart& call) {
    if (!call.name.empty()) {
        std::string events = close("completed");
        events +=
            open("fc", {{"type", "function_call"}, {"name", call.name}, {"arguments", ""}});
        return events;
    }
    output_.back()["arguments"].get_ref<std::string&>() += call.arguments;
    return item_event("response.function_call_arguments.delta", {{"delta", call.arguments}});
}

std::string ResponseItems::begin() {
    std::string events = event("response.created", {{"response", response_}});
    events += event("response.in_progress", {{"response", response_}});
    return events;
}

std::string ResponseItems::add(const Choice& part) {
    std::string events;
    if (!part.text.empty()) events += add_text(part.text);
    for (const ToolCallPart& call : part.calls) events += add_call(call);
    finish_reason_ = part.finish_reason;
    return events;
}

std::string ResponseItems::finish(const Usage& usage) {
    const bool is_complete = finish_reason_ == "stop" || finish_reason_ == "tool_calls";
    const char* status = is_complete ? "completed" : "incomplete";
    std::string events;
    if (output_.empty()) events = add_text("");
    events += close(status);
    response_ = make_response(status);
    const std::string reason =
        finish_reason_ == "length" ? "max_output_tokens" : finish_reason_;
    if (!is_complete) response_["incomplete_details"]["reason"] = reason;
    response_["usage"] = {{"input_tokens", usage.prompt_tokens},
                          {"input_tokens_details", {{"cached_tokens", 0}}},
                          {"output_tokens", usage.completion_tokens},
                          {"output_tokens_details", {{"reasoning_tokens", 0}}},
                          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    return events +
           event(is_complete ? "response.completed" : "response.incomplete",
                 {{"response", response_}}) +
           sse_done;
}

std::string ResponseItems::fail(const ApiError& error) {
    response_ = make_response("failed");
    response_["error"] = {{"code", error.code.empty() ? error.type : error.code},
                          {"message", replace_invalid_utf8(error.what())}};
    return event("response.failed", {{"response", response_}}) + sse_done;
}

}  // namespace llm::serve
