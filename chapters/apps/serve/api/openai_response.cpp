#include "chapters/apps/serve/api/openai_response.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "common/files/unicode.hpp"

namespace llm::serve {
namespace {

using json = nlohmann::ordered_json;

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

// OpenAI's value for a probability of 0, since JSON has no infinity.
double finite(double log_prob) { return std::max(log_prob, -9999.0); }

json chat_token(const TokenText& token) {
    json bytes = json::array();
    for (const char byte : token.bytes) bytes.push_back(static_cast<unsigned char>(byte));
    return {{"token", replace_invalid_utf8(token.bytes)},
            {"logprob", finite(token.log_prob)},
            {"bytes", bytes}};
}

json chat_log_probs(const std::vector<TokenDetails>& tokens) {
    json content = json::array();
    for (const TokenDetails& each : tokens) {
        json top = json::array();
        for (const TokenText& token : each.top) top.push_back(chat_token(token));
        json token = chat_token(each.token);
        token["top_logprobs"] = top;
        content.push_back(token);
    }
    return {{"content", content}, {"refusal", nullptr}};
}

json completion_log_probs(const std::vector<TokenDetails>& tokens) {
    json texts = json::array(), values = json::array(), tops = json::array(),
         offsets = json::array();
    for (const TokenDetails& each : tokens) {
        json top = json::object();
        for (const TokenText& token : each.top)
            top[replace_invalid_utf8(token.bytes)] = finite(token.log_prob);
        texts.push_back(replace_invalid_utf8(each.token.bytes));
        values.push_back(finite(each.token.log_prob));
        tops.push_back(top);
        offsets.push_back(each.text_offset);
    }
    return {{"tokens", texts},
            {"token_logprobs", values},
            {"top_logprobs", tops},
            {"text_offset", offsets}};
}

// A part of a call, or all of it. Its id is that of the response, of the choice and of the
// call.
json call_json(const ResponseHead& head, std::size_t choice, const ToolCallPart& call) {
    if (call.name.empty()) return {{"function", {{"arguments", call.arguments}}}};
    const std::string id = "call_" + head.id.substr(head.id.find('-') + 1) + "-" +
                           std::to_string(choice) + "-" + std::to_string(call.index);
    return {{"id", id},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// A chunk has the text or the part of one call.
json delta_json(const ResponseHead& head, const Choice& choice) {
    json delta = json::object();
    if (!choice.text.empty()) delta["content"] = choice.text;
    for (const ToolCallPart& part : choice.calls) {
        json call = {{"index", part.index}};
        call.update(call_json(head, choice.index, part));
        delta["tool_calls"].push_back(call);
    }
    return delta;
}

json message_json(const ResponseHead& head, const Choice& choice) {
    json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    if (choice.calls.empty()) return message;
    message["content"] = text_or_null(choice.text);
    for (const ToolCallPart& call : choice.calls)
        message["tool_calls"].push_back(call_json(head, choice.index, call));
    return message;
}

json choice_json(const ResponseHead& head, const Choice& choice, bool is_chunk) {
    json result = {{"index", choice.index}};
    if (!head.chat)
        result["text"] = choice.text;
    else if (is_chunk)
        result["delta"] = delta_json(head, choice);
    else
        result["message"] = message_json(head, choice);
    result["logprobs"] = !head.log_probs ? json()
                         : head.chat     ? chat_log_probs(choice.tokens)
                                         : completion_log_probs(choice.tokens);
    result["finish_reason"] = text_or_null(choice.finish_reason);
    return result;
}

json usage_json(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

json head_json(const ResponseHead& head, bool is_chunk) {
    const char* object = !head.chat ? "text_completion"
                         : is_chunk ? "chat.completion.chunk"
                                    : "chat.completion";
    json result = {
        {"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
    if (is_chunk && head.include_usage) result["usage"] = nullptr;  // but for the last chunk
    return result;
}

// max_model_len is vLLM's.
json model_entry(const ListedModel& model) {
    return {{"id", model.name},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "this server"},
            {"max_model_len", model.context_length}};
}

}  // namespace

void append(Choice& whole, const Choice& part) {
    whole.text += part.text;
    whole.tokens.insert(whole.tokens.end(), part.tokens.begin(), part.tokens.end());
    whole.finish_reason = part.finish_reason;
    for (const ToolCallPart& call : part.calls)
        if (call.name.empty())
            whole.calls[call.index].arguments += call.arguments;
        else
            whole.calls.push_back(call);
}

std::string response_json(const ResponseHead& head, const std::vector<Choice>& choices,
                          const Usage& usage) {
    json result = head_json(head, false);
    result["choices"] = json::array();
    for (const Choice& choice : choices)
        result["choices"].push_back(choice_json(head, choice, false));
    result["usage"] = usage_json(usage);
    return result.dump();
}

std::string role_chunk_json(const ResponseHead& head, std::size_t index) {
    json result = head_json(head, true);
    json choice = {{"index", index},
                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr}};
    result["choices"] = json::array({choice});
    return result.dump();
}

std::vector<std::string> chunks_json(const ResponseHead& head, const Choice& choice) {
    // The text and the log-probabilities come first, the reason last.
    std::vector<Choice> parts;
    if (!choice.text.empty() || choice.calls.empty())
        parts.push_back({choice.index, choice.text});
    for (const ToolCallPart& call : choice.calls)
        parts.push_back({choice.index, "", {}, "", {call}});
    parts.front().tokens = choice.tokens;
    parts.back().finish_reason = choice.finish_reason;

    std::vector<std::string> chunks;
    for (const Choice& part : parts) {
        json result = head_json(head, true);
        result["choices"] = json::array({choice_json(head, part, true)});
        chunks.push_back(result.dump());
    }
    return chunks;
}

std::string usage_chunk_json(const ResponseHead& head, const Usage& usage) {
    json result = head_json(head, true);
    result["choices"] = json::array();
    result["usage"] = usage_json(usage);
    return result.dump();
}

std::string sse_event(const std::string& text) { return "data: " + text + "\n\n"; }

std::string error_json(const ApiError& error) {
    const json content = {{"message", replace_invalid_utf8(error.what())},
                          {"type", error.type},
                          {"param", text_or_null(error.param)},
                          {"code", text_or_null(error.code)}};
    return json{{"error", content}}.dump();
}

std::string model_json(const ListedModel& model) { return model_entry(model).dump(); }

std::string models_json(const ListedModel& model) {
    return json{{"object", "list"}, {"data", json::array({model_entry(model)})}}.dump();
}

std::string empty_list_json() {
    return json{{"object", "list"},
                {"data", json::array()},
                {"first_id", nullptr},
                {"last_id", nullptr},
                {"has_more", false}}
        .dump();
}

}  // namespace llm::serve
