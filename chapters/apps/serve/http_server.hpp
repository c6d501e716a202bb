// The HTTP server: cpp-httplib, with limits of our own for each connection.
#pragma once

#include <chrono>
#include <mutex>
#include <set>
#include <string>

#include <httplib.h>

namespace llm::serve {

struct HttpLimits {
    std::size_t max_body_bytes = 1 << 20;
    std::size_t max_connections = 256;       // that are served at the same time
    std::chrono::milliseconds read{10'000};  // until a request has arrived as a whole
    std::chrono::milliseconds write{5'000};  // that a client may accept no bytes
};

// One connection, which serves one request. httplib bounds the time of each read, so a client
// that sends a byte now and then would hold a thread forever; here the request as a whole has a
// deadline.
class Connection final : public httplib::Stream {
 public:
    Connection(socket_t socket, const HttpLimits& limits);
    ~Connection() override;  // closes it, so that the client can read the last bytes

    // Has the client neither gone away nor closed its side?
    bool is_open() const;

    bool is_readable() const override;
    bool is_writable() const override { return is_open(); }
    ssize_t read(char* bytes, size_t size) override;
    ssize_t write(const char* bytes, size_t size) override;
    void get_remote_ip_and_port(std::string& ip, int& port) const override;
    void get_local_ip_and_port(std::string& ip, int& port) const override;
    socket_t socket() const override { return socket_; }

 private:
    socket_t socket_;
    std::chrono::milliseconds write_limit_;
    std::chrono::steady_clock::time_point read_deadline_;
    std::string buffer_{};  // received, and not yet read
};

class HttpServer final : public httplib::Server {
 public:
    explicit HttpServer(const HttpLimits& limits);

    // Returns the port; 0 asks for a free one. Throws ValueError if it cannot be used.
    int bind(const std::string& host, int port);

    // Ends the connections that are still open, also those that wait for a request to arrive.
    void hang_up();

    // The connection whose request the calling thread answers.
    static const Connection& current_connection();

 private:
    bool process_and_close_socket(socket_t socket) override;

    HttpLimits limits_;
    std::mutex mutex_;
    std::set<socket_t> open_;
};

}  // namespace llm::serve
