#include "chapters/apps/serve/http/http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/tensors/shape.hpp"

namespace llm::serve {
namespace {

bool is_loopback(int socket) {
    sockaddr_in6 address{};  // large enough for IPv4
    socklen_t size = sizeof address;
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    if (address.sin6_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(&address);
    return (ntohl(ipv4->sin_addr.s_addr) >> 24) == 127;
}

}  // namespace

void set_limits(httplib::Server& server, const HttpLimits& limits, ConnectionPool& pool) {
    server.new_task_queue = [&pool] { return pool.start_threads(); };
    server.set_payload_max_length(limits.max_body_bytes);
    server.set_read_timeout(limits.read);
    server.set_write_timeout(limits.write);
    server.set_tcp_nodelay(true);  // each event of a stream at once
    // One request for each connection, because a connection that is kept holds a thread.
    server.set_keep_alive_max_count(1);
    server.set_keep_alive_timeout(limits.read.count());  // up to the first byte
}

ListeningAddress bind_server(httplib::Server& server, const std::string& host, int port) {
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
    require(port > 0 && !host.empty(),
            "{} cannot be listened at with this port; --port 0 finds a free one", host);
    ::listen(listening, 512);  // httplib lets only 5 connections wait
    return {port, is_loopback(listening)};
}

std::string url_host(const std::string& host) {
    if (host == "0.0.0.0") return "127.0.0.1";
    if (host == "::") return "[::1]";
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

}  // namespace llm::serve
