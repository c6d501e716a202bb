// cpp-httplib's server: its limits, its port, and the connections of its clients. All of this
// needs only what is the same in its versions from 0.11 on.
#pragma once

#include <chrono>
#include <string>

#include <httplib.h>

namespace llm::serve {

struct HttpLimits {
    std::size_t max_body_bytes = 1 << 20;
    std::size_t max_connections = 256;  // that are served at the same time
    std::chrono::seconds read{5};       // that a client may send no bytes
    std::chrono::seconds write{5};      // that a client may accept no bytes
};

void set_limits(httplib::Server& server, const HttpLimits& limits);

// Returns the port; 0 asks for a free one. Throws ValueError if it cannot be used.
int bind_server(httplib::Server& server, const std::string& host, int port);

// The connection of a request. httplib has Request::is_connection_closed, but not in 0.11.
class ClientConnection {
 public:
    explicit ClientConnection(const httplib::Request& request);

    // Has the client neither gone away nor closed its side?
    bool is_open() const;

 private:
    int socket_ = -1;  // not found: counts as open
};

// Ends the connections that wait for bytes of a request. The server accepts no new ones.
void hang_up();

}  // namespace llm::serve
