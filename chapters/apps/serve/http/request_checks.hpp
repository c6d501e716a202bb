// Who may ask for what: all that is decided before the body of a request is read.
#pragma once

#include <string>
#include <vector>

#include <httplib.h>

#include "chapters/apps/serve/api/api_error.hpp"

namespace llm::serve {

struct AccessRules {
    std::string api_key{};             // empty: everyone may ask
    std::vector<std::string> hosts{};  // names that requests may use for the server; empty: all
    std::vector<std::string>
        origins{};  // of the pages whose scripts may read answers; "*": all
    std::size_t max_body_bytes = 1 << 20;
};

// The methods of a path, such as "GET, HEAD". Empty: there is no such path.
std::string allowed_methods(const std::string& path);

// Throws ApiError unless the rules allow the request. OPTIONS is allowed if a page of another
// origin may ask.
void check_request(const httplib::Request& request, const AccessRules& rules);

// The headers of cross-origin resource sharing: those of each answer, and those that a browser
// asks for before it sends a request. Source: WHATWG Fetch, section 3.3.
void allow_origin(const httplib::Request& request, const AccessRules& rules,
                  httplib::Response& response);
void answer_preflight(const httplib::Request& request, const AccessRules& rules,
                      httplib::Response& response);

}  // namespace llm::serve
