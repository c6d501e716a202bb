// What the engine's thread tells the thread that answers a client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "chapters/11_generation/generation.hpp"

namespace llm::serve {

using Clock = std::chrono::steady_clock;

// A new token, with natural logarithms of probabilities if they were asked for: its own and
// those of the most likely tokens, before temperature and filters.
struct TokenLogProb {
    Id id = 0;
    double log_prob = 0;
};
struct SampledToken {
    TokenLogProb token;
    std::vector<TokenLogProb> top{};
};

// The end of a sequence. canceled: the server stops.
struct SequenceEnd {
    StopReason reason = StopReason::eos_token;
    bool canceled = false;
    std::string error{};
};

struct SequenceEvent {
    std::size_t choice = 0;
    std::variant<SampledToken, SequenceEnd> what;
};

// The events of the sequences of one request, from one thread to another.
class EventQueue {
 public:
    void push(SequenceEvent event) {
        {
            const std::lock_guard lock(mutex_);
            events_.push_back(std::move(event));
        }
        changed_.notify_one();
    }

    // The oldest event; none if there is none until then.
    std::optional<SequenceEvent> pop_until(Clock::time_point time) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_until(lock, time, [&] { return !events_.empty(); })) return {};
        SequenceEvent event = std::move(events_.front());
        events_.pop_front();
        return event;
    }

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<SequenceEvent> events_;
};

}  // namespace llm::serve
