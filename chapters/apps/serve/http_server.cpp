#include "chapters/apps/serve/http_server.hpp"

#include <array>

#include <poll.h>
#include <sys/socket.h>

#include "common/tensors/shape.hpp"

namespace llm::serve {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

thread_local const Connection* connection_of_thread = nullptr;

// Waits until a socket is ready or the time is over. Returns what it is ready for; 0: nothing.
short wait_for(socket_t socket, short events, milliseconds time) {
    pollfd waiting{socket, events, 0};
    const int count = ::poll(&waiting, 1, int(std::max<long>(0, time.count())));
    return count > 0 ? waiting.revents : short(0);
}

// Keeps a socket in the list of those that are open. It is closed while it is in the list.
class OpenSocket {
 public:
    OpenSocket(std::mutex& mutex, std::set<socket_t>& open, socket_t socket)
        : mutex_(mutex), open_(open), socket_(socket) {
        const std::lock_guard lock(mutex_);
        open_.insert(socket_);
    }
    ~OpenSocket() {
        const std::lock_guard lock(mutex_);
        open_.erase(socket_);
    }
    OpenSocket(const OpenSocket&) = delete;

 private:
    std::mutex& mutex_;
    std::set<socket_t>& open_;
    socket_t socket_;
};

milliseconds until(Time deadline) {
    return std::chrono::duration_cast<milliseconds>(deadline -
                                                    std::chrono::steady_clock::now());
}

}  // namespace

Connection::Connection(socket_t socket, const HttpLimits& limits)
    : socket_(socket),
      write_limit_(limits.write),
      read_deadline_(std::chrono::steady_clock::now() + limits.read) {}

// Closing a socket with unread bytes would reset the connection, and the client might lose the
// response. So what it still sends is read for a moment.
Connection::~Connection() {
    ::shutdown(socket_, SHUT_WR);
    const Time end = std::chrono::steady_clock::now() + milliseconds(500);
    std::array<char, 4096> ignored;
    while (wait_for(socket_, POLLIN, until(end)) != 0)
        if (::recv(socket_, ignored.data(), ignored.size(), MSG_DONTWAIT) <= 0) break;
    ::close(socket_);
}

bool Connection::is_open() const {
    return (wait_for(socket_, POLLRDHUP, milliseconds(0)) & (POLLRDHUP | POLLHUP | POLLERR)) ==
           0;
}

bool Connection::is_readable() const {
    return !buffer_.empty() || wait_for(socket_, POLLIN, until(read_deadline_)) != 0;
}

ssize_t Connection::read(char* bytes, size_t size) {
    if (buffer_.empty()) {
        if (!is_readable()) return -1;
        std::array<char, 4096> received;
        const ssize_t count = ::recv(socket_, received.data(), received.size(), 0);
        if (count <= 0) return count;
        buffer_.assign(received.data(), size_t(count));
    }
    const size_t count = std::min(size, buffer_.size());
    buffer_.copy(bytes, count);
    buffer_.erase(0, count);
    return ssize_t(count);
}

ssize_t Connection::write(const char* bytes, size_t size) {
    if ((wait_for(socket_, POLLOUT, write_limit_) & POLLOUT) == 0) return -1;
    return ::send(socket_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
    get_remote_ip_and_port(ip, port);
}

HttpServer::HttpServer(const HttpLimits& limits) : limits_(limits) {
    new_task_queue = [count = limits.max_connections] {
        return new httplib::ThreadPool(count);
    };
    set_payload_max_length(limits.max_body_bytes);
    // Two servers must not share a port, as SO_REUSEPORT would allow.
    set_socket_options([](socket_t socket) {
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
}

int HttpServer::bind(const std::string& host, int port) {
    if (port == 0)
        port = bind_to_any_port(host);
    else if (!bind_to_port(host, port))
        port = -1;
    require(port > 0, "{} cannot be listened at with this port; --port 0 finds a free one",
            host);
    ::listen(svr_sock_, 512);  // httplib lets only 5 connections wait
    return port;
}

const Connection& HttpServer::current_connection() { return *connection_of_thread; }

void HttpServer::hang_up() {
    const std::lock_guard lock(mutex_);
    for (const socket_t socket : open_) ::shutdown(socket, SHUT_RD);
}

// Ranges and compression are not used: their headers are not looked at.
bool HttpServer::process_and_close_socket(socket_t socket) try {
    const OpenSocket registered(mutex_, open_, socket);
    Connection connection(socket, limits_);
    connection_of_thread = &connection;
    bool closed = false;
    return process_request(connection, true, closed, [](httplib::Request& request) {
        request.ranges.clear();
        request.headers.erase("Accept-Encoding");
    });
} catch (const std::exception&) {
    return false;  // out of memory: this connection is closed, and the others go on
}

}  // namespace llm::serve
