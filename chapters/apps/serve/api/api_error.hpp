// What OpenAI's API answers instead of a result.
#pragma once

#include <stdexcept>
#include <string>

namespace llm::serve {

// Becomes {"error": {"message", "type", "param", "code"}} with an HTTP status. An empty param
// or code is null in JSON.
struct ApiError : std::runtime_error {
    int status;
    std::string type, param, code;

    ApiError(int status_, std::string type_, const std::string& message,
             std::string param_ = {}, std::string code_ = {})
        : std::runtime_error(message),
          status(status_),
          type(std::move(type_)),
          param(std::move(param_)),
          code(std::move(code_)) {}
};

// The request is wrong: 400.
inline ApiError invalid_request(const std::string& message, const std::string& param = {},
                                const std::string& code = {}) {
    return {400, "invalid_request_error", message, param, code};
}

// The server has too much to do, or ends.
inline ApiError too_many_requests(const std::string& message) {
    return {429, "rate_limit_error", message, {}, "too_many_requests"};
}
inline ApiError shutting_down(const std::string& message) {
    return {503, "server_error", message};
}
inline ApiError waited_too_long() {
    return {408, "server_error", "the request waited too long", {}, "timeout"};
}

}  // namespace llm::serve
