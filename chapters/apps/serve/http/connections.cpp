#include "chapters/apps/serve/http/connections.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>

namespace llm::serve {
namespace {

// Passes the socket of each client to a function, with its address. Sockets from FD_SETSIZE on,
// which old versions of httplib do not serve, are left out.
template <class Function>
void for_each_client(const Function& function) {
    for (int socket = 0; socket < FD_SETSIZE; ++socket) {
        sockaddr_storage peer{};
        socklen_t size = sizeof peer;
        if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
            function(socket, peer);
    }
}

int port_of(const sockaddr_storage& peer) {
    return ntohs(peer.ss_family == AF_INET
                     ? reinterpret_cast<const sockaddr_in&>(peer).sin_port
                     : reinterpret_cast<const sockaddr_in6&>(peer).sin6_port);
}

// As httplib writes it.
std::string host_of(const sockaddr_storage& peer) {
    std::array<char, NI_MAXHOST> host{};
    const socklen_t size =
        peer.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&peer), size, host.data(), host.size(),
                  nullptr, 0, NI_NUMERICHOST);
    return host.data();
}

short poll_events(int socket, short events, int milliseconds = 0) {
    pollfd client{socket, events, 0};
    ::poll(&client, 1, milliseconds);
    return client.revents;
}

// Has the server read all that the client has sent, and has nothing come for 850 ms?
bool is_silent(int socket) {
    int num_unread = 0;
    tcp_info info{};
    socklen_t size = sizeof info;
    return ::ioctl(socket, FIONREAD, &num_unread) == 0 && num_unread == 0 &&
           ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_last_data_recv >= 850;
}

}  // namespace

ClientConnection::ClientConnection(const httplib::Request& request)
    : has_chunks_(request.version != "HTTP/1.0") {
    for_each_client([&](int socket, const sockaddr_storage& peer) {
        if (port_of(peer) == request.remote_port && host_of(peer) == request.remote_addr)
            socket_ = socket;
    });
}

bool ClientConnection::is_half_closed() const {
    return (poll_events(socket_, POLLRDHUP) & POLLRDHUP) != 0;
}

bool ClientConnection::is_gone() const {
    return (poll_events(socket_, 0) & (POLLHUP | POLLERR)) != 0;
}

bool ClientConnection::send(const std::string& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
        const ssize_t n =
            ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += static_cast<std::size_t>(n);
    }
    return true;
}

bool ClientConnection::send_part(const std::string& text) const {
    if (!has_chunks_) return send(text);
    std::ostringstream size;
    size << std::hex << text.size();
    return send(size.str() + "\r\n" + text + "\r\n");
}

void ClientConnection::send_response(const httplib::Request& request,
                                     httplib::Response& response) const {
    std::string head = "HTTP/1.1 " + std::to_string(response.status) + " \r\n";
    for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
    send(head + "\r\n" + (request.method == "HEAD" ? "" : response.body));
    if (response.content_provider_ && request.method != "HEAD") {
        httplib::DataSink sink;
        sink.write = [&](const char* data, std::size_t size) {
            return send(std::string(data, size));
        };
        sink.done = [] {};
        response.content_provider_(0, response.content_length_, sink);
    }
    ::shutdown(socket_, SHUT_RDWR);  // httplib cannot send it again
    response.content_provider_ = nullptr;
}

void ClientConnection::drain() const {
    ::shutdown(socket_, SHUT_WR);
    std::array<char, 1 << 16> dropped;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end && poll_events(socket_, POLLIN, 500) != 0)
        if (::recv(socket_, dropped.data(), dropped.size(), MSG_DONTWAIT) <= 0) return;
}

// httplib's own threads, counted. The type that enqueue returns depends on the version.
class ConnectionPool::Threads : public httplib::TaskQueue {
 public:
    explicit Threads(ConnectionPool& pool) : pool_(pool), threads_(pool.max_connections_) {}

    auto enqueue(std::function<void()> serve)
        -> decltype(std::declval<httplib::ThreadPool&>().enqueue(serve)) override {
        ++pool_.num_open_;
        return threads_.enqueue([this, serve = std::move(serve)] {
            serve();
            const std::lock_guard lock(pool_.mutex_);
            pool_.kept_sockets_.erase(std::this_thread::get_id());
            --pool_.num_open_;
        });
    }
    void shutdown() override { threads_.shutdown(); }

 private:
    ConnectionPool& pool_;
    httplib::ThreadPool threads_;
};

httplib::TaskQueue* ConnectionPool::start_threads() { return new Threads(*this); }

void ConnectionPool::keep(const ClientConnection& client) {
    const std::lock_guard lock(mutex_);
    kept_sockets_[std::this_thread::get_id()] = client.socket();
}

// A request that has waited for a thread is silent, too, between the moment when all of it has
// been read and that of keep(). Therefore a socket must stay silent for 150 ms of calls.
void ConnectionPool::make_room() {
    const auto silent_before = std::exchange(silent_since_, {});
    if (num_open_ <= max_connections_) return;
    const auto now = std::chrono::steady_clock::now();
    // Without the lock, for which keep() waits: to look at many sockets takes long.
    std::vector<int> silent;
    for_each_client([&](int socket, const sockaddr_storage&) {
        if (!is_silent(socket)) return;
        const auto before = silent_before.find(socket);
        const auto since = before == silent_before.end() ? now : before->second;
        silent_since_[socket] = since;
        if (now - since >= std::chrono::milliseconds(150)) silent.push_back(socket);
    });
    const std::lock_guard lock(mutex_);
    for (const int socket : silent) {
        const bool is_kept = std::any_of(kept_sockets_.begin(), kept_sockets_.end(),
                                         [&](auto& kept) { return kept.second == socket; });
        if (!is_kept && is_silent(socket)) ::shutdown(socket, SHUT_RDWR);
    }
}

void hang_up() {
    for_each_client([](int socket, const sockaddr_storage&) { ::shutdown(socket, SHUT_RD); });
}

}  // namespace llm::serve
