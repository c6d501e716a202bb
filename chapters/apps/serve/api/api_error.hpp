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

}  // namespace llm::serve
