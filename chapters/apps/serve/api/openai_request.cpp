#include "chapters/apps/serve/api/openai_request.hpp"

#include <algorithm>

#include "chapters/apps/chat/chat_session.hpp"
#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/chat_messages.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"
#include "chapters/apps/serve/api/response_format.hpp"
#include "chapters/apps/serve/api/sampling_fields.hpp"
#include "chapters/apps/serve/api/token_fields.hpp"
#include "chapters/apps/serve/api/tool_request.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/json.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"

namespace llm::serve {

Json parse_body(std::string_view body) try {
    Json json = parse_json(body, "the body");
    if (!json.as<JsonObject>()) throw invalid_request("the body: not a JSON object");
    return json;
} catch (const FileError& error) {
    throw invalid_request(error.what());
}

void read_model(RequestFields& fields, const std::string& served) {
    const std::string name = fields.text("model");
    if (name != served)
        throw ApiError(
            404, "invalid_request_error",
            "the model " + escaped(name) + " does not exist; this server has " + served,
            "model", "model_not_found");
}

namespace {

void read_stop(RequestFields& fields, CompletionRequest& request) {
    request.stop = fields.texts("stop");
    if (request.stop.size() > 4)
        throw invalid_request("stop must have at most 4 strings", "stop");
    for (const std::string& stop : request.stop)
        if (stop.empty() || stop.size() > 1000)
            throw invalid_request("a stop string must have from 1 to 1000 bytes", "stop");
}

void read_stream(RequestFields& fields, CompletionRequest& request) {
    request.stream = fields.flag_or("stream", false);
    const Json* value = fields.find("stream_options");
    if (!value) return;
    if (!request.stream)
        throw invalid_request("stream_options is only allowed with stream: true",
                              "stream_options");
    RequestFields options(*value, "stream_options");
    request.include_usage = options.flag_or("include_usage", false);
    options.allow_only("include_obfuscation", {false});
    options.allow_only("continuous_usage_stats", {false});
    options.reject_unread();
}

// The grammar that a field asks for. One that is too ambiguous, or that no token of the
// vocabulary can begin, is a mistake of the request: it must be known before the first token.
template <class Make>
std::shared_ptr<const Grammar> checked_grammar(const ApiModel& model, const std::string& param,
                                               const std::string& key, const Make& make) {
    return model.grammars->get(param + key, [&] {
        std::shared_ptr<const Grammar> grammar = make();
        try {
            if (grammar) TokenConstraint(model.trie, grammar).allowed_tokens();
        } catch (const ValueError& error) {
            throw invalid_request(param + ": " + error.what(), param);
        }
        return grammar;
    });
}

// What restricts the text of an answer. /v1/completions has no tools.
void read_constraints(RequestFields& fields, const ApiModel& model,
                      CompletionRequest& request) {
    if (const Json* format = fields.find("response_format"))
        request.grammar = checked_grammar(model, "response_format", json_text(*format),
                                          [&] { return grammar_of_response_format(*format); });
    if (!request.chat) {
        fields.allow_only("tools", {JsonArray{}});
        fields.allow_only("tool_choice", {"none", "auto"});
        fields.allow_only("parallel_tool_calls", {true, false});
    } else if (ToolRequest tools = read_tools(fields); !tools.definitions.empty()) {
        if (request.grammar)
            throw invalid_request("response_format is not supported together with tools",
                                  "response_format", "unsupported_parameter");
        request.grammar =
            checked_grammar(model, "tools", tools.key, [&] { return grammar_of_tools(tools); });
        request.tools = std::move(tools.definitions);
    }
    fields.allow_only("functions", {JsonArray{}});
    fields.allow_only("function_call", {"none", "auto"});
}

// What is not implemented, with the values that ask for nothing, and labels.
void read_neutral(RequestFields& fields) {
    fields.allow_only("store", {false});
    fields.find("metadata");  // of stored answers
    fields.allow_only("modalities", {JsonArray{"text"}});
    fields.allow_only("service_tier", {"auto", "default"});
    for (const char* name : {"user", "safety_identifier", "prompt_cache_key"})
        fields.allow_label(name);
}

// The fields that both endpoints have.
void read_common(RequestFields& fields, const ApiModel& model, CompletionRequest& request) {
    read_model(fields, model.name);
    request.sampling = model.sampling;
    read_sampling(fields, request.sampling);
    request.logit_changes = read_logit_changes(fields, model.tokenizer.vocab_size());
    request.n = size_t(fields.integer("n", 1, std::int64_t(max_choices)).value_or(1));
    if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX))
        request.seed = std::uint32_t(*seed) ^ std::uint32_t(std::uint64_t(*seed) >> 32);
    read_stop(fields, request);
    read_stream(fields, request);
    read_constraints(fields, model, request);
    read_neutral(fields);
}

// Checks the lengths: max_tokens of the request, or as many as there is room for, at most
// `otherwise`.
void read_lengths(RequestFields& fields, const std::string& name, const ApiModel& model,
                  std::size_t otherwise, CompletionRequest& request) {
    std::size_t longest = 0;
    for (const std::vector<Id>& prompt : request.prompts)
        longest = std::max(longest, prompt.size());
    const std::string param = request.chat ? "messages" : "prompt";
    const auto too_long = [&](const std::string& what) {
        return invalid_request(what, param, "context_length_exceeded");
    };
    if (longest > model.max_prompt_tokens)
        throw too_long("the prompt has " + std::to_string(longest) + " tokens, at most " +
                       std::to_string(model.max_prompt_tokens) + " are allowed");
    const std::size_t room = model.context_length - longest;
    const auto max_tokens = fields.integer(name, 1, INT64_MAX);
    if (max_tokens && std::uint64_t(*max_tokens) > room)
        throw too_long("the context has " + std::to_string(model.context_length) +
                       " tokens; the prompt has " + std::to_string(longest) + ", and " + name +
                       " asks for " + std::to_string(*max_tokens) + " more");
    request.max_new_tokens = max_tokens ? size_t(*max_tokens) : std::min(room, otherwise);
}

// Whether Qwen3 may think before it answers: as vLLM's clients say it, or OpenAI's.
bool reads_thinking(RequestFields& fields) {
    const Json* effort = fields.find("reasoning_effort");
    fields.allow_only("reasoning_effort", {"none"});
    const Json* value = fields.find("chat_template_kwargs");
    if (!value) return !effort;
    RequestFields arguments(*value, "chat_template_kwargs");
    const bool thinks = arguments.flag_or("enable_thinking", !effort);
    arguments.reject_unread();
    return thinks;
}

std::vector<Id> encode_messages(RequestFields& fields, const ApiModel& model,
                                const CompletionRequest& request) {
    const ChatFormat& format = *model.chat_template->format;
    if (!request.tools.empty() && !format.has_tools)
        throw invalid_request(
            "tools are not supported with the chat template " + format.title + " of this model",
            "tools", "unsupported_parameter");
    RenderOptions options{true, true, bos_token_text(model.tokenizer), chat::today()};
    options.tools = request.tools;
    options.enable_thinking = reads_thinking(fields);
    const std::vector<Message> messages = read_messages(fields, *model.chat_template);
    return encode_conversation(model.tokenizer,
                               render_conversation(*model.chat_template, messages, options));
}

// Reads the fields of one endpoint; errors of templates and tokenizers name the prompt.
template <class Read>
CompletionRequest read_request(const Json& object, const std::string& prompt,
                               const Read& read) {
    try {
        CompletionRequest request;
        RequestFields fields(object);
        read(fields, request);
        fields.reject_unread();
        return request;
    } catch (const ValueError& error) {
        throw invalid_request(error.what(), prompt);
    } catch (const TextError& error) {
        throw invalid_request(error.what(), prompt);
    }
}

}  // namespace

CompletionRequest parse_chat_request(std::string_view body, const ApiModel& model) {
    return read_chat_request(parse_body(body), model);
}

CompletionRequest read_chat_request(const Json& object, const ApiModel& model) {
    return read_request(object, "messages", [&](RequestFields& fields, auto& request) {
        read_common(fields, model, request);
        if (!model.chat_template)
            throw invalid_request("the model " + model.name +
                                  " has no chat template; /v1/completions continues texts");
        const bool logprobs = fields.flag_or("logprobs", false);
        const auto top_logprobs = fields.integer("top_logprobs", 0, 20);
        if (top_logprobs.value_or(0) > 0 && !logprobs)
            throw invalid_request("top_logprobs needs logprobs: true", "top_logprobs");
        if (logprobs) request.top_logprobs = size_t(top_logprobs.value_or(0));
        request.prompts = {encode_messages(fields, model, request)};
        const bool is_old = fields.find("max_tokens") != nullptr;
        if (is_old && fields.find("max_completion_tokens"))
            throw invalid_request(
                "max_tokens is the old name of max_completion_tokens; "
                "give one of them",
                "max_tokens");
        read_lengths(fields, is_old ? "max_tokens" : "max_completion_tokens", model,
                     model.context_length, request);
        fields.allow_only("verbosity", {"medium"});
        fields.allow_only("prompt_cache_retention", {"in_memory", "in-memory"});
        for (const char* name : {"audio", "prediction", "web_search_options"})
            fields.allow_only(name, {});
    });
}

CompletionRequest parse_completion_request(std::string_view body, const ApiModel& model) {
    return read_request(parse_body(body), "prompt", [&](RequestFields& fields, auto& request) {
        request.chat = false;
        read_common(fields, model, request);
        if (const auto top_logprobs = fields.integer("logprobs", 0, 5))
            request.top_logprobs = size_t(*top_logprobs);
        request.prompts = read_tokens(
            fields,
            {"prompt", max_choices, model.tokenizer.vocab_size(),
             [&](const auto& text) { return models::encode_prompt(model.tokenizer, text); }});
        if (request.prompts.size() * request.n > max_choices)
            throw invalid_request(
                "prompts times n must be at most " + std::to_string(max_choices), "n");
        read_lengths(fields, "max_tokens", model, 16, request);
        fields.allow_only("best_of", {request.n});
        fields.allow_only("echo", {false});
        fields.allow_only("suffix", {""});
    });
}

}  // namespace llm::serve
