// The endpoints that compute an answer.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "chapters/apps/serve/http/handler_context.hpp"

namespace llm::serve {

// Reads a request, and writes its answer. Throws ApiError.
using Answer =
    std::function<void(const HandlerContext& context, const httplib::Request& request,
                       httplib::Response& response)>;
std::map<std::string, Answer> answers();  // by path

}  // namespace llm::serve
