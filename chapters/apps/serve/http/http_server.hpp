// cpp-httplib's server: its limits and its address. All of this needs only what is the same in
// its versions from 0.11 on.
#pragma once

#include <chrono>
#include <string>

#include <httplib.h>

#include "chapters/apps/serve/http/connections.hpp"

namespace llm::serve {

struct HttpLimits {
    std::size_t max_body_bytes = 1 << 20;
    std::size_t max_connections = 256;  // that are served at the same time
    std::chrono::seconds read{5};       // that a client may send no bytes
    std::chrono::seconds write{5};      // that a client may accept no bytes
};

void set_limits(httplib::Server& server, const HttpLimits& limits, ConnectionPool& pool);

struct ListeningAddress {
    int port = 0;
    bool is_loopback = false;  // other machines cannot reach it
};

// Port 0 asks for a free one. Throws ValueError if the address cannot be used.
ListeningAddress bind_server(httplib::Server& server, const std::string& host, int port);

// The host as a URL has it, and as Host has it: an IPv6 address in brackets. The addresses that
// stand for all of this machine's become that of the loopback.
std::string url_host(const std::string& host);

}  // namespace llm::serve
