// What computes the answers to requests, as the end of the server sees it.
#pragma once

#include <cstddef>
#include <stdexcept>

namespace llm::serve {

struct ServerBusy : std::runtime_error {
    ServerBusy() : std::runtime_error("too many requests are waiting; try again later") {}
};
struct ServerStops : std::runtime_error {
    ServerStops() : std::runtime_error("the server is shutting down") {}
};

class RequestLoop {
 public:
    virtual ~RequestLoop() = default;

    // Rejects new requests from now on. Returns how much has not ended: sequences, or requests.
    virtual std::size_t stop_accepting() = 0;
    virtual std::size_t num_open() const = 0;
    // Ends all of it; each gets an end that says so. Returns how much there was.
    virtual std::size_t cancel_all() = 0;
};

}  // namespace llm::serve
