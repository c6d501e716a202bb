// The endpoints: what each request of HTTP becomes.
#pragma once

#include <string>

#include "chapters/apps/serve/api/completion.hpp"
#include "chapters/apps/serve/http/connections.hpp"
#include "chapters/apps/serve/http/request_checks.hpp"

namespace llm::serve {

// What all requests share. What it refers to must outlive the server.
struct HandlerContext {
    const ApiModel& model;
    EngineLoop& loop;
    Metrics& metrics;
    ConnectionPool& connections;
    std::string page;  // at /: HTML that loads nothing else
    AccessRules rules{};
    std::chrono::seconds time_limit{120};
    std::uint32_t seed = 0;    // of requests that have none
    std::int64_t created = 0;  // when the server began, in seconds since 1970
};

void add_endpoints(httplib::Server& server, const HandlerContext& context);

}  // namespace llm::serve
