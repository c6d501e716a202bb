#include "chapters/apps/serve/http/request_checks.hpp"

#include <algorithm>

#include "chapters/apps/serve/http/header_values.hpp"

namespace llm::serve {
namespace {

using httplib::Request;

ApiError rejection(int status, const std::string& message, const std::string& code = {}) {
    return {status, "invalid_request_error", message, {}, code};
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

std::vector<std::string> values_of(const Request& request, const std::string& header) {
    std::vector<std::string> values;
    const auto [begin, end] = request.headers.equal_range(header);
    for (auto each = begin; each != end; ++each) values.push_back(each->second);
    return values;
}

// Request::get_header_value of httplib 0.11 ends at the first zero byte.
std::string value_of(const Request& request, const std::string& header) {
    const std::vector<std::string> values = values_of(request, header);
    return values.empty() ? "" : values[0];
}

// A page can give its own name the address 127.0.0.1 after it was loaded (DNS rebinding). The
// browser then takes this server for the page's, but its requests have the page's name.
void check_host(const Request& request, const AccessRules& rules) {
    if (rules.hosts.empty()) return;
    std::string accepted = rules.hosts[0];
    for (std::size_t i = 1; i < rules.hosts.size(); ++i) accepted += ", " + rules.hosts[i];
    for (const std::string& host : values_of(request, "Host"))
        if (!contains(rules.hosts, host_name(host)))
            throw rejection(403, "the Host " + host + " is not accepted, only " + accepted +
                                     "; with --api-key, every name is");
}

void check_method(const Request& request, const AccessRules& rules) {
    const std::string methods = allowed_methods(request.path);
    if (methods.empty()) throw rejection(404, "no such endpoint: " + request.path);
    if (request.method == "OPTIONS" && !rules.origins.empty()) return;
    if ((", " + methods + ",").find(", " + request.method + ",") == std::string::npos)
        throw rejection(
            405, request.path + " has no method " + request.method + ", only " + methods);
}

// Returns the size of the body. httplib 0.11 neither limits a body without a length nor
// compares several lengths.
std::uint64_t checked_length(const Request& request) {
    if (request.has_header("Transfer-Encoding"))
        throw rejection(411,
                        "Transfer-Encoding is not supported: a Content-Length is required");
    const std::vector<std::string> lengths = values_of(request, "Content-Length");
    if (lengths.empty()) {
        if (request.method == "POST") throw rejection(411, "a Content-Length is required");
        return 0;
    }
    const auto length = parse_length(lengths[0]);
    if (!length || std::count(lengths.begin(), lengths.end(), lengths[0]) !=
                       std::ptrdiff_t(lengths.size()))
        throw rejection(400, "the Content-Length must be one decimal number");
    return *length;
}

void check_key(const Request& request, const AccessRules& rules) {
    if (rules.api_key.empty() || request.method == "OPTIONS") return;
    if (request.path == "/" || request.path == "/health") return;
    const std::string key = bearer_key(value_of(request, "Authorization"));
    if (!equal_in_constant_time(key, rules.api_key))
        throw rejection(401, "the API key is missing or wrong", "invalid_api_key");
}

// A page of another site can make a browser send a form or a text to this server, but not JSON.
void check_body(const Request& request, std::uint64_t length, const AccessRules& rules) {
    if (length > rules.max_body_bytes)
        throw rejection(413, "the body has " + std::to_string(length) + " bytes; at most " +
                                 std::to_string(rules.max_body_bytes) + " are accepted");
    for (const std::string& encoding : values_of(request, "Content-Encoding"))
        if (lower_case(encoding) != "identity")
            throw rejection(415, "the body must not be compressed");
    if (request.method == "POST" && !is_json_type(value_of(request, "Content-Type")))
        throw rejection(415, "the Content-Type must be application/json");
}

// What Access-Control-Allow-Origin says; empty: the page must not read the answer.
std::string accepted_origin(const Request& request, const AccessRules& rules) {
    if (contains(rules.origins, "*")) return "*";
    const std::string origin = value_of(request, "Origin");
    return contains(rules.origins, origin) ? origin : "";
}

}  // namespace

std::string allowed_methods(const std::string& path) {
    const std::string stored = "/v1/chat/completions/", models = "/v1/models/";
    if (path == "/v1/completions" || path == "/v1/responses" || path == "/v1/embeddings")
        return "POST";
    if (path == "/v1/chat/completions") return "GET, HEAD, POST";
    if (path.starts_with(stored) && path != stored)
        return path.ends_with("/messages") ? "GET, HEAD" : "GET, HEAD, POST, DELETE";
    const bool is_page = path == "/" || path == "/health" || path == "/metrics" ||
                         path == "/v1/models" || (path.starts_with(models) && path != models);
    return is_page ? "GET, HEAD" : "";
}

void check_request(const Request& request, const AccessRules& rules) {
    check_host(request, rules);
    check_method(request, rules);
    const std::uint64_t length = checked_length(request);
    check_key(request, rules);
    check_body(request, length, rules);
}

void allow_origin(const Request& request, const AccessRules& rules,
                  httplib::Response& response) {
    if (rules.origins.empty()) return;
    response.set_header("Vary", "Origin");
    const std::string origin = accepted_origin(request, rules);
    if (origin.empty()) return;
    response.set_header("Access-Control-Allow-Origin", origin);
    response.set_header("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate");
}

void answer_preflight(const Request& request, const AccessRules& rules,
                      httplib::Response& response) {
    response.status = 204;
    if (accepted_origin(request, rules).empty()) return;
    const std::string asked = value_of(request, "Access-Control-Request-Headers");
    response.set_header("Access-Control-Allow-Methods", allowed_methods(request.path));
    response.set_header("Access-Control-Allow-Headers",
                        asked.empty() ? "Authorization, Content-Type" : asked);
    response.set_header("Access-Control-Max-Age", "600");
    if (value_of(request, "Access-Control-Request-Private-Network") == "true")
        response.set_header("Access-Control-Allow-Private-Network", "true");
}

}  // namespace llm::serve
