// The endpoints: what each request of HTTP becomes.
#pragma once

#include <string>

#include "chapters/apps/serve/api/completion.hpp"
#include "chapters/apps/serve/http/http_server.hpp"

namespace llm::serve {

// What all requests share. The model, the loop and the metrics must outlive the server.
struct HandlerContext {
    const ApiModel& model;
    EngineLoop& loop;
    Metrics& metrics;
    std::string page;       // at /: HTML that loads nothing else
    std::string api_key{};  // empty: everyone may ask
    std::chrono::seconds time_limit{120};
    std::uint32_t seed = 0;    // of requests that have none
    std::int64_t created = 0;  // when the server began, in seconds since 1970
};

void add_endpoints(httplib::Server& server, const HandlerContext& context);

// Compares every byte, so that the time does not tell how many bytes of a key are right.
bool equal_in_constant_time(const std::string& a, const std::string& b);

}  // namespace llm::serve
