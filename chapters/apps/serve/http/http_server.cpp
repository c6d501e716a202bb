#include "chapters/apps/serve/http/http_server.hpp"

#include <array>

#include <netdb.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>

#include "common/tensors/shape.hpp"

namespace llm::serve {
namespace {

// Passes the socket of each client to a function, with its address as httplib writes it.
// httplib shows no sockets. Those from FD_SETSIZE on, which old versions do not serve, are left
// out.
template <class Function>
void for_each_client(const Function& function) {
    for (int socket = 0; socket < FD_SETSIZE; ++socket) {
        sockaddr_storage peer{};
        socklen_t size = sizeof peer;
        auto* address = reinterpret_cast<sockaddr*>(&peer);
        std::array<char, NI_MAXHOST> host;
        std::array<char, NI_MAXSERV> port;
        if (::getpeername(socket, address, &size) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) &&
            ::getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                          NI_NUMERICHOST | NI_NUMERICSERV) == 0)
            function(socket, std::string(host.data()), std::stoi(port.data()));
    }
}

}  // namespace

void set_limits(httplib::Server& server, const HttpLimits& limits) {
    server.new_task_queue = [count = limits.max_connections] {
        return new httplib::ThreadPool(count);
    };
    server.set_payload_max_length(limits.max_body_bytes);
    server.set_read_timeout(limits.read);
    server.set_write_timeout(limits.write);
    // One request for each connection, because a connection that is kept holds a thread.
    server.set_keep_alive_max_count(1);
    server.set_keep_alive_timeout(limits.read.count());  // up to the first byte
}

int bind_server(httplib::Server& server, const std::string& host, int port) {
    int listening = -1;
    server.set_socket_options([&listening](socket_t socket) {
        // Two servers must not share a port, as httplib's SO_REUSEPORT would allow.
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        listening = socket;
    });
    if (port == 0)
        port = server.bind_to_any_port(host);
    else if (!server.bind_to_port(host, port))
        port = -1;
    require(port > 0, "{} cannot be listened at with this port; --port 0 finds a free one",
            host);
    ::listen(listening, 512);  // httplib lets only 5 connections wait
    return port;
}

ClientConnection::ClientConnection(const httplib::Request& request) {
    for_each_client([&](int socket, const std::string& host, int port) {
        if (host == request.remote_addr && port == request.remote_port) socket_ = socket;
    });
}

bool ClientConnection::is_open() const {
    pollfd client{socket_, POLLRDHUP, 0};
    ::poll(&client, 1, 0);
    return (client.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

void hang_up() {
    for_each_client([](int socket, const std::string&, int) { ::shutdown(socket, SHUT_RD); });
}

}  // namespace llm::serve
