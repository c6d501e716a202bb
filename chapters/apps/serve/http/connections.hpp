// The connections of the server's clients, which httplib 0.11 does not show: who is still
// there, who keeps others out, and who has closed one side.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <httplib.h>

namespace llm::serve {

// The connection of a request.
class ClientConnection {
 public:
    explicit ClientConnection(const httplib::Request& request);

    // Has the client closed its sending side? That is all that arrives when it is killed, too,
    // until something is sent to it.
    bool is_half_closed() const;

    // Has the client closed both sides, and answered what was sent since with a reset?
    bool is_gone() const;

    // Old versions of httplib send nothing to a client that has closed its sending side, which
    // HTTP allows after a whole request. These functions do: they send bytes, the next part of
    // a stream (an empty one ends it; HTTP/1.0 knows no chunks), or all of a response.
    bool send(const std::string& bytes) const;
    bool send_part(const std::string& text) const;
    void send_response(const httplib::Request& request, httplib::Response& response) const;

    // Ends the sending side, and drops what still arrives: at most 2 seconds, and at most half
    // a second without a byte. If a socket is closed with unread bytes, the client gets a
    // reset, and may lose the response.
    void drain() const;

    int socket() const { return socket_; }
    bool has_chunks() const { return has_chunks_; }  // from HTTP/1.1 on

 private:
    bool has_chunks_;
    int socket_ = -1;  // not found: counts as open
};

// Threads for the connections of a server, which it must outlive.
class ConnectionPool {
 public:
    explicit ConnectionPool(std::size_t max_connections) : max_connections_(max_connections) {}

    httplib::TaskQueue* start_threads();

    // The request has arrived as a whole: make_room leaves its connection alone.
    void keep(const ClientConnection& client);

    // If connections wait for a thread, ends those whose clients have been silent for a second
    // without having sent a whole request. To be called every few milliseconds, by one thread.
    void make_room();

 private:
    class Threads;

    std::size_t max_connections_;
    std::atomic<std::size_t> num_open_ = 0;  // with those that wait
    std::mutex mutex_{};
    std::map<std::thread::id, int> kept_sockets_{};
    std::map<int, std::chrono::steady_clock::time_point> silent_since_{};  // of sockets
};

// Ends the connections that wait for bytes of a request. The server accepts no new ones.
void hang_up();

}  // namespace llm::serve
