#include "chapters/apps/serve/http/handlers.hpp"

#include <atomic>
#include <memory>

namespace llm::serve {
namespace {

using httplib::Request;
using httplib::Response;
using httplib::Server;

// How often a thread that waits for tokens looks whether its client is still there.
constexpr std::chrono::milliseconds watch_interval(20);

void set_error(Response& response, const ApiError& error) {
    response.status = error.status;
    if (error.status == 429) response.set_header("Retry-After", "1");
    if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
    response.set_content(error_json(error), "application/json");
}

ResponseHead head_of(const HandlerContext& context, const CompletionRequest& request,
                     std::uint64_t number) {
    const std::string id = std::to_string(context.created) + "-" + std::to_string(number);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {request.chat,
            (request.chat ? "chatcmpl-" : "cmpl-") + id,
            context.model.name,
            std::chrono::duration_cast<std::chrono::seconds>(now).count(),
            request.top_logprobs.has_value(),
            request.include_usage};
}

// Passes each part of the answers to a function, until they have ended. Returns false if the
// client has gone away, or if the function says so.
template <class Function>
bool for_each_part(Completion& completion, const ClientConnection& client,
                   const Function& function) {
    while (!completion.has_ended()) {
        if (!client.is_open()) return false;
        const auto part = completion.next_part(Clock::now() + watch_interval);
        if (part && !function(*part)) return false;
    }
    return true;
}

// The whole answer at once. If the client goes away, the completion is destroyed, which frees
// its pages.
void answer(Completion& completion, const ClientConnection& client, const ResponseHead& head,
            std::size_t num_answers, Response& response) {
    std::vector<Choice> answers(num_answers);
    for (std::size_t i = 0; i < num_answers; ++i) answers[i].index = i;
    const bool is_complete = for_each_part(completion, client, [&](const Choice& part) {
        append(answers[part.index], part);
        return true;
    });
    if (is_complete)
        response.set_content(response_json(head, answers, completion.usage()),
                             "application/json");
    else
        response.status = 499;  // nginx's status of a client that closed the request
}

// Writes the answer as server-sent events. An error after the first byte cannot have a status
// any more: it is an event. Returns false if the client has gone away.
bool write_events(Completion& completion, const ClientConnection& client,
                  const ResponseHead& head, const CompletionRequest& request,
                  httplib::DataSink& sink) {
    const auto write = [&](const std::string& text) {
        return sink.write(text.data(), text.size());
    };
    try {
        for (std::size_t i = 0; request.chat && i < request.n; ++i)
            write(sse_event(role_chunk_json(head, i)));
        const bool is_complete = for_each_part(completion, client, [&](const Choice& part) {
            for (const std::string& chunk : chunks_json(head, part))
                if (!write(sse_event(chunk))) return false;
            return true;
        });
        if (!is_complete) return false;
        if (request.include_usage) write(sse_event(usage_chunk_json(head, completion.usage())));
        write(sse_done);
    } catch (const ApiError& error) {
        write(sse_event(error_json(error)));
    } catch (const std::exception& error) {  // out of memory
        write(sse_event(error_json({500, "server_error", error.what()})));
    }
    sink.done();
    return true;
}

void complete(const HandlerContext& context, const ClientConnection& client,
              CompletionRequest request, Response& response) {
    static std::atomic<std::uint64_t> num_requests = 0;
    const std::uint64_t number = ++num_requests;
    if (!request.seed) request.seed = context.seed + std::uint32_t(number * max_choices);

    // Shared, because a std::function must be copyable. The response owns it.
    const auto completion = std::make_shared<Completion>(context.model, request, context.loop,
                                                         Clock::now() + context.time_limit);
    const ResponseHead head = head_of(context, request, number);
    if (!request.stream)
        return answer(*completion, client, head, request.prompts.size() * request.n, response);
    response.set_header("Cache-Control", "no-store");
    response.set_chunked_content_provider(
        "text/event-stream",
        [completion, client, head, request](std::size_t, httplib::DataSink& sink) {
            return write_events(*completion, client, head, request, sink);
        });
}

// A handler whose errors become responses.
template <class Function>
Server::Handler handler(const Function& function) {
    return [function](const Request& request, Response& response) {
        try {
            function(request, response);
        } catch (const ApiError& error) {
            set_error(response, error);
        } catch (const std::exception& error) {
            set_error(response, {500, "server_error", error.what()});
        }
    };
}

void check_key(const HandlerContext& context, const Request& request) {
    if (context.api_key.empty()) return;
    const std::string given = request.get_header_value("Authorization");
    if (!equal_in_constant_time(given, "Bearer " + context.api_key))
        throw ApiError(401, "invalid_request_error", "the API key is missing or wrong", {},
                       "invalid_api_key");
}

// A page of another site can make a browser send a form or a text to this server, but not JSON.
void check_content_type(const Request& request) {
    if (!request.get_header_value("Content-Type").starts_with("application/json"))
        throw ApiError(415, "invalid_request_error",
                       "the Content-Type must be application/json");
}

// Before the body is read: httplib 0.11 limits neither one without a length nor what it
// decompresses. All other errors come after the body, because a connection that is closed with
// unread bytes is reset, and the client may lose the response.
Server::HandlerResponse check_head(const Request& request, Response& response) {
    // Ignore Range: httplib would send every requested range, however many there are.
    const_cast<Request&>(request).ranges.clear();
    const bool sends_body =
        request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
    const std::string encoding = request.get_header_value("Content-Encoding");
    if (request.has_header("Transfer-Encoding") ||
        (sends_body && !request.has_header("Content-Length")))
        set_error(response, {411, "invalid_request_error", "a Content-Length is required"});
    else if (!encoding.empty() && encoding != "identity")
        set_error(response, {415, "invalid_request_error", "the body must not be compressed"});
    else
        return Server::HandlerResponse::Unhandled;
    return Server::HandlerResponse::Handled;
}

// The errors of httplib itself.
ApiError http_error(const Request& request, int status) {
    if (status == 404)
        return {404, "invalid_request_error", "no such endpoint: " + request.path};
    if (status == 413) return {413, "invalid_request_error", "the body is too large"};
    if (status >= 500) return {status, "server_error", "the server failed"};
    return {status, "invalid_request_error", "the HTTP request is not valid"};
}

}  // namespace

bool equal_in_constant_time(const std::string& a, const std::string& b) {
    unsigned char difference = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i)
        difference =
            static_cast<unsigned char>(difference | (a[i] ^ (i < b.size() ? b[i] : '\0')));
    return difference == 0;
}

namespace {

void add_pages(Server& server, const HandlerContext& context) {
    server.Get("/", handler([&context](const Request&, Response& response) {
                   response.set_content(context.page, "text/html; charset=utf-8");
               }));
    server.Get("/health", handler([](const Request&, Response& response) {
                   response.set_content(R"({"status":"ok"})", "application/json");
               }));
    server.Get("/metrics", handler([&context](const Request& request, Response& response) {
                   check_key(context, request);
                   response.set_content(context.metrics.text(), "text/plain; version=0.0.4");
               }));
    server.Get("/v1/models", handler([&context](const Request& request, Response& response) {
                   check_key(context, request);
                   response.set_content(models_json(context.model.name, context.created),
                                        "application/json");
               }));
}

using ParseRequest = CompletionRequest (*)(std::string_view body, const ApiModel& model);
void add_completions(Server& server, const HandlerContext& context, const char* path,
                     ParseRequest parse) {
    server.Post(path, handler([&context, parse](const Request& request, Response& response) {
                    check_key(context, request);
                    check_content_type(request);
                    complete(context, ClientConnection(request),
                             parse(request.body, context.model), response);
                }));
}

}  // namespace

void add_endpoints(Server& server, const HandlerContext& context) {
    server.set_pre_routing_handler(check_head);
    add_pages(server, context);
    add_completions(server, context, "/v1/completions", parse_completion_request);
    add_completions(server, context, "/v1/chat/completions", parse_chat_request);
    server.set_error_handler([](const Request& request, Response& response) {
        if (response.body.empty()) set_error(response, http_error(request, response.status));
    });
    server.set_logger([&context](const Request&, const Response& response) {
        context.metrics.add_response(response.status);
    });
}

}  // namespace llm::serve
