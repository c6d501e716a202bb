// What the server counts and measures, for Prometheus.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace llm::serve {

// How many values are at most each bound, as Prometheus wants it: counts are cumulative.
struct Histogram {
    std::vector<double> bounds;           // ascending
    std::vector<std::uint64_t> counts{};  // of each bound
    std::uint64_t count = 0;
    double sum = 0;

    explicit Histogram(std::vector<double> bounds_)
        : bounds(std::move(bounds_)), counts(bounds.size()) {}
    void observe(double value);
};

// The state of the engine after a step.
struct EngineState {
    std::size_t running = 0, waiting = 0;  // sequences: a request with n = 2 has two
    std::size_t pages_used = 0, pages_total = 0, preemptions = 0;
};

// All threads may call its functions at any time.
class Metrics {
 public:
    void set_state(const EngineState& state);
    void add_prompt(std::size_t num_tokens);
    void add_first_token(double seconds);  // since the request arrived
    void add_next_token(double seconds);   // since the one before
    void add_response(int status);         // of HTTP

    EngineState state() const;
    // The text format 0.0.4 of Prometheus.
    std::string text() const;

 private:
    mutable std::mutex mutex_;
    EngineState state_{};
    std::uint64_t prompt_tokens_ = 0;
    std::map<int, std::uint64_t> responses_{};  // by status
    Histogram time_to_first_token_{{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}};
    Histogram time_between_tokens_{{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}};
};

}  // namespace llm::serve
