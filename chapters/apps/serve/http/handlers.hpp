// The endpoints: what each request of HTTP becomes.
#pragma once

#include "chapters/apps/serve/http/handler_context.hpp"

namespace llm::serve {

void add_endpoints(httplib::Server& server, const HandlerContext& context);

}  // namespace llm::serve
