#include "chapters/apps/serve/http/handlers.hpp"

#include <utility>

#include "chapters/apps/serve/http/answers.hpp"

namespace llm::serve {
namespace {

using httplib::Request;
using httplib::Response;
using httplib::Server;

void set_error(const Request& request, Response& response, const ApiError& error) {
    response.status = error.status;
    if (error.status == 405) response.set_header("Allow", allowed_methods(request.path));
    if (error.status == 429) response.set_header("Retry-After", "1");
    if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
    response.set_content(error_json(error), "application/json");
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
    return {context.model_name(), context.max_tokens(), context.created};
}

void get_model(const HandlerContext& context, const std::string& name, Response& response) {
    if (name != context.model_name())
        throw ApiError(
            404, "invalid_request_error",
            "the model " + name + " does not exist; this server has " + context.model_name(),
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
    for (const auto& [path, answer] : answers())
        server.Post(path, handler(context, [&context, answer = answer](const Request& request,
                                                                       Response& response) {
                        answer(context, request, response);
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
