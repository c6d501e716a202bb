#include "chapters/apps/serve/http/answers.hpp"

#include <array>
#include <atomic>
#include <memory>

#include "chapters/apps/serve/api/responses.hpp"

namespace llm::serve {
namespace {

using httplib::Request;
using httplib::Response;

// How often a thread that waits for tokens looks whether its client is still there.
constexpr std::chrono::milliseconds watch_interval(20);

// nginx's status of a client that closed the request.
constexpr int client_closed_request = 499;

// An endpoint that answers: its path, the beginning of the ids of its answers, and what it
// reads and writes.
struct Endpoint {
    const char *path, *id;
    CompletionRequest (*parse)(std::string_view body, const ApiModel& model);
    std::shared_ptr<AnswerFormat> (*format)(const ResponseHead& head,
                                            const CompletionRequest& request,
                                            const std::string& body);
};

std::shared_ptr<AnswerFormat> choices_format(const ResponseHead& head,
                                             const CompletionRequest& request,
                                             const std::string&) {
    return std::make_shared<ChoicesFormat>(head, request.prompts.size() * request.n,
                                           request.stream);
}

const std::array endpoints = {
    Endpoint{"/v1/completions", "cmpl-", parse_completion_request, choices_format},
    Endpoint{"/v1/chat/completions", "chatcmpl-", parse_chat_request, choices_format},
    Endpoint{"/v1/responses", "resp_", parse_responses_request,
             [](const ResponseHead& head, const CompletionRequest&,
                const std::string& body) -> std::shared_ptr<AnswerFormat> {
                 return std::make_shared<ResponseItems>(head, body);
             }}};

ResponseHead head_of(const HandlerContext& context, const Endpoint& endpoint,
                     const CompletionRequest& request, std::uint64_t number) {
    const std::string id = std::to_string(context.created) + "-" + std::to_string(number);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {request.chat,
            endpoint.id + id,
            context.model_name(),
            std::chrono::duration_cast<std::chrono::seconds>(now).count(),
            request.top_logprobs.has_value(),
            request.include_usage};
}

// The model, if the endpoint is one for it.
const TextGeneration& generation_of(const HandlerContext& context) {
    if (const auto* generation = std::get_if<TextGeneration>(&context.served))
        return *generation;
    throw invalid_request("the model " + context.model_name() +
                              " is an encoder, which writes no text; /v1/embeddings gives "
                              "its vectors",
                          "model");
}
const TextEmbedding& embedding_of(const HandlerContext& context) {
    if (const auto* embedding = std::get_if<TextEmbedding>(&context.served)) return *embedding;
    throw invalid_request("the model " + context.model_name() +
                              " writes texts; /v1/embeddings needs an encoder, such as BERT",
                          "model");
}

// Passes each part of the answers to a function, until they have ended. Returns false if the
// client has gone away, or if a function says so. A client that has closed its sending side may
// still want its answer, or may have been killed: `probe` sends it something without a meaning,
// once, which the system of a killed client answers with a reset.
template <class Probe, class Function>
bool for_each_part(Completion& completion, const ClientConnection& client, const Probe& probe,
                   const Function& function) {
    bool was_probed = false;
    while (!completion.has_ended()) {
        if (!was_probed && client.is_half_closed()) {
            was_probed = true;
            if (!probe()) return false;
        }
        if (client.is_gone()) return false;
        const auto part = completion.next_part(Clock::now() + watch_interval);
        if (part && !function(*part)) return false;
    }
    return true;
}

// The whole answer at once. If the client goes away, the completion is destroyed, which frees
// its pages. HTTP/1.0 has no interim responses: such a client is not probed.
void answer(Completion& completion, const ClientConnection& client, AnswerFormat& format,
            Response& response) {
    const auto probe = [&] {
        return !client.has_chunks() || client.send("HTTP/1.1 100 Continue\r\n\r\n");
    };
    const bool is_complete = for_each_part(completion, client, probe, [&](const Choice& part) {
        format.add(part);
        return true;
    });
    if (!is_complete) {
        response.status = client_closed_request;
        return;
    }
    format.finish(completion.usage());
    response.set_content(format.response_json(), "application/json");
}

// Writes the answer as server-sent events. An error after the first byte cannot have a status
// any more: it is an event. Returns false if the client has gone away.
bool write_events(Completion& completion, const ClientConnection& client, AnswerFormat& format,
                  httplib::DataSink& sink) {
    const auto write = [&](const std::string& text) {
        if (text.empty()) return true;  // an empty chunk would end the stream
        return client.is_half_closed() ? client.send_part(text)
                                       : sink.write(text.data(), text.size());
    };
    const auto probe = [&] { return write(sse_comment); };
    const auto write_part = [&](const Choice& part) { return write(format.add(part)); };
    try {
        write(format.begin());
        if (!for_each_part(completion, client, probe, write_part)) return false;
        write(format.finish(completion.usage()));
    } catch (const ApiError& error) {
        write(format.fail(error));
    } catch (const std::exception& error) {  // out of memory
        write(format.fail({500, "server_error", error.what()}));
    }
    if (client.is_half_closed()) return client.send_part("") && false;
    sink.done();
    return true;
}

void complete(const HandlerContext& context, const Endpoint& endpoint, const Request& http,
              Response& response) {
    static std::atomic<std::uint64_t> num_requests = 0;
    const std::uint64_t number = ++num_requests;
    const auto& [model, loop] = generation_of(context);
    CompletionRequest request = endpoint.parse(http.body, model);
    if (!request.seed) request.seed = context.seed + std::uint32_t(number * max_choices);

    // Shared, because a std::function must be copyable. The response owns it.
    const auto completion =
        std::make_shared<Completion>(model, request, loop, Clock::now() + context.time_limit);
    const auto format =
        endpoint.format(head_of(context, endpoint, request, number), request, http.body);
    const ClientConnection client(http);
    if (!request.stream) return answer(*completion, client, *format, response);
    response.set_header("Cache-Control", "no-store");
    const auto write = [completion, client, format](std::size_t, httplib::DataSink& sink) {
        return write_events(*completion, client, *format, sink);
    };
    // HTTP/1.0 knows no chunks: the end of the connection ends the answer.
    if (client.has_chunks())
        response.set_chunked_content_provider("text/event-stream", write);
    else
        response.set_content_provider("text/event-stream", write);
}

// The vectors of texts. As with a whole answer, a client that has closed its sending side is
// probed once.
void embed(const HandlerContext& context, const Request& http, Response& response) {
    const auto& [model, loop] = embedding_of(context);
    const EmbeddingRequest request = parse_embedding_request(http.body, model);
    const ClientConnection client(http);
    const Clock::time_point deadline = Clock::now() + context.time_limit;
    bool was_probed = false;
    const auto keep_on = [&] {
        if (Clock::now() >= deadline) throw waited_too_long();
        if (!was_probed && client.is_half_closed() && client.has_chunks()) {
            was_probed = true;
            client.send("HTTP/1.1 100 Continue\r\n\r\n");
        }
        return !client.is_gone();
    };
    try {
        const std::optional<Matrix> vectors = loop.embed(request.texts, keep_on);  // (N, C)
        response.status = vectors ? 200 : client_closed_request;
        if (vectors)
            response.set_content(embeddings_json(model, request, *vectors), "application/json");
    } catch (const ServerStops& stops) {
        throw shutting_down(stops.what());
    } catch (const ServerBusy& busy) {
        throw too_many_requests(busy.what());
    }
}

}  // namespace

std::string HandlerContext::model_name() const {
    return std::visit([](const auto& what) { return what.model.name; }, served);
}
std::size_t HandlerContext::max_tokens() const {
    if (const auto* generation = std::get_if<TextGeneration>(&served))
        return generation->model.context_length;
    return std::get<TextEmbedding>(served).model.max_tokens;
}

std::map<std::string, Answer> answers() {
    std::map<std::string, Answer> all = {{"/v1/embeddings", embed}};
    for (const Endpoint& endpoint : endpoints)
        all.emplace(endpoint.path, [&endpoint](const HandlerContext& context,
                                               const Request& request, Response& response) {
            complete(context, endpoint, request, response);
        });
    return all;
}

}  // namespace llm::serve
