#include "chapters/apps/serve/http/handlers.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "chapters/apps/serve/api/responses.hpp"

namespace llm::serve {
namespace {

using httplib::Request;
using httplib::Response;
using httplib::Server;

// How often a thread that waits for tokens looks whether its client is still there.
constexpr std::chrono::milliseconds watch_interval(20);

void set_error(const Request& request, Response& response, const ApiError& error) {
    response.status = error.status;
    if (error.status == 405) response.set_header("Allow", allowed_methods(request.path));
    if (error.status == 429) response.set_header("Retry-After", "1");
    if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
    response.set_content(error_json(error), "application/json");
}

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
            context.model.name,
            std::chrono::duration_cast<std::chrono::seconds>(now).count(),
            request.top_logprobs.has_value(),
            request.include_usage};
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
        response.status = 499;  // nginx's status of a client that closed the request
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
    CompletionRequest request = endpoint.parse(http.body, context.model);
    if (!request.seed) request.seed = context.seed + std::uint32_t(number * max_choices);

    // Shared, because a std::function must be copyable. The response owns it.
    const auto completion = std::make_shared<Completion>(context.model, request, context.loop,
                                                         Clock::now() + context.time_limit);
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

// A handler whose errors become responses.
template <class Function>
Server::Handler handler(const HandlerContext& context, const Function& function) {
    return [&context, function](const Request& request, Response& response) {
        try {
            context.connections.keep(ClientConnection(request));
            function(request, response);
        } catch (const ApiError& error) {
            set_error(request, response, error);
        } catch (const std::exception& error) {
            set_error(request, response, {500, "server_error", error.what()});
        }
    };
}

// An error before the body has been read: it is read and dropped after the response.
void refuse(const Request& request, Response& response, const ApiError& error) {
    set_error(request, response, error);
    const std::string body = std::exchange(response.body, {});
    const auto send = [body, client = ClientConnection(request)](
                          std::size_t offset, std::size_t length, httplib::DataSink& sink) {
        sink.write(body.data() + offset, length);
        client.drain();
        return true;
    };
    response.set_content_provider(body.size(), "application/json", send);
}

Server::HandlerResponse check_head(const HandlerContext& context, const Request& request,
                                   Response& response) {
    // Ignore Range, since httplib would send every requested range, however many there are.
    const_cast<Request&>(request).ranges.clear();
    try {
        check_request(request, context.rules);
        // New versions of httplib do not know the encoding identity.
        const_cast<Request&>(request).headers.erase("Content-Encoding");
        if (request.method != "OPTIONS") return Server::HandlerResponse::Unhandled;
        answer_preflight(request, context.rules, response);
    } catch (const ApiError& error) {
        refuse(request, response, error);
    }
    return Server::HandlerResponse::Handled;
}

// The errors of httplib itself.
ApiError http_error(const Request& request, int status) {
    if (status == 404)  // httplib's answer to HEAD and others
        return {404, "invalid_request_error", "no such endpoint: " + request.path};
    if (status >= 500) return {status, "server_error", "the server failed"};
    return {status, "invalid_request_error", "the HTTP request is not valid"};
}

void set_json(Response& response, const std::string& json) {
    response.set_content(json, "application/json");
}

ListedModel listed_model(const HandlerContext& context) {
    return {context.model.name, context.model.context_length, context.created};
}

void get_model(const HandlerContext& context, const std::string& name, Response& response) {
    if (name != context.model.name)
        throw ApiError(
            404, "invalid_request_error",
            "the model " + name + " does not exist; this server has " + context.model.name,
            "model", "model_not_found");
    set_json(response, model_json(listed_model(context)));
}

void add_pages(Server& server, const HandlerContext& context) {
    const auto get = [&](const char* path, const auto& function) {
        server.Get(path, handler(context, function));
    };
    get("/", [&context](const Request&, Response& response) {
        response.set_content(context.page, "text/html; charset=utf-8");
    });
    get("/health",
        [](const Request&, Response& response) { set_json(response, R"({"status":"ok"})"); });
    get("/metrics", [&context](const Request&, Response& response) {
        response.set_content(context.metrics.text(), "text/plain; version=0.0.4");
    });
    get("/v1/models", [&context](const Request&, Response& response) {
        set_json(response, models_json(listed_model(context)));
    });
    get("/v1/models/.+", [&context](const Request& request, Response& response) {
        get_model(context, request.path.substr(std::string("/v1/models/").size()), response);
    });
}

// OpenAI's API stores answers if `store` says so. This server stores none.
void add_stored_completions(Server& server, const HandlerContext& context) {
    server.Get("/v1/chat/completions", handler(context, [](const Request&, Response& response) {
                   set_json(response, empty_list_json());
               }));
    const Server::Handler not_found = handler(context, [](const Request& request, Response&) {
        throw ApiError(404, "invalid_request_error",
                       "there is no " + request.path + ": this server stores no answers");
    });
    const char* const one = "/v1/chat/completions/.+";
    server.Get(one, not_found).Post(one, not_found).Delete(one, not_found);
}

void add_answers(Server& server, const HandlerContext& context) {
    for (const Endpoint& endpoint : endpoints)
        server.Post(endpoint.path,
                    handler(context, [&](const Request& request, Response& response) {
                        complete(context, endpoint, request, response);
                    }));
}

// What happens to every request before and after its handler.
void add_checks(Server& server, const HandlerContext& context) {
    const auto check = [&context](const Request& request, Response& response) {
        return check_head(context, request, response);
    };
    server.set_pre_routing_handler(check);
    // Expect: 100-continue asks before the body is sent.
    server.set_expect_100_continue_handler([check](const Request& request, Response& response) {
        const bool is_refused = check(request, response) == Server::HandlerResponse::Handled;
        return is_refused ? response.status : 100;
    });
    server.set_error_handler([](const Request& request, Response& response) {
        if (!response.has_header("Content-Type"))
            set_error(request, response, http_error(request, response.status));
    });
    server.set_post_routing_handler([&context](const Request& request, Response& response) {
        allow_origin(request, context.rules, response);
        const ClientConnection client(request);
        if (client.is_half_closed()) client.send_response(request, response);
    });
    server.set_logger([&context](const Request&, const Response& response) {
        context.metrics.add_response(response.status);
    });
}

}  // namespace

void add_endpoints(Server& server, const HandlerContext& context) {
    add_checks(server, context);
    add_pages(server, context);
    add_stored_completions(server, context);
    add_answers(server, context);
}

}  // namespace llm::serve
