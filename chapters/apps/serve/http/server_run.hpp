// A server, from its first connection to its last.
#pragma once

#include "chapters/apps/serve/http/handler_context.hpp"
#include "chapters/apps/serve/http/http_server.hpp"

namespace llm::serve {

struct ServerSettings {
    std::string host = "127.0.0.1", api_key{};
    std::vector<std::string> origins{};
    std::size_t port = 8080;
    HttpLimits http{};
    std::size_t time_limit = 120, stop_seconds = 5;
    std::uint32_t seed = 0;  // of requests that have none
};

// Answers requests until Ctrl-C; then what runs has stop_seconds to end. `page` is the one at
// /. Throws ValueError if the address cannot be used.
void run_server(const ServerSettings& settings,
                const std::variant<TextGeneration, TextEmbedding>& served, Metrics& metrics,
                const std::string& page);

}  // namespace llm::serve
