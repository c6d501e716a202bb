// Chapter 21's engine in a thread of its own. The engine knows no threads: other threads leave
// their requests and cancellations here, and the loop takes them between two steps.
#pragma once

#include <map>
#include <memory>
#include <thread>

#include "chapters/21_serving/engine.hpp"
#include "chapters/apps/serve/loop/event_queue.hpp"
#include "chapters/apps/serve/loop/metrics.hpp"
#include "chapters/apps/serve/loop/request_loop.hpp"

namespace llm::serve {

class EngineLoop;

// The sequences of one request while they are generated. The destructor cancels those that have
// not ended, which frees their pages: so a client that goes away is never forgotten.
class OpenRequest {
 public:
    OpenRequest(OpenRequest&&) = default;
    OpenRequest& operator=(OpenRequest&&) = delete;
    ~OpenRequest();

    std::optional<SequenceEvent> next_event(Clock::time_point until);
    void cancel(std::size_t choice);
    std::size_t num_open() const { return open_.size(); }

 private:
    friend class EngineLoop;
    OpenRequest(EngineLoop& loop, std::shared_ptr<EventQueue> events)
        : loop_(&loop), events_(std::move(events)) {}

    EngineLoop* loop_;
    std::shared_ptr<EventQueue> events_;
    std::map<std::size_t, std::uint64_t> open_{};  // the id of each choice's sequence
};

class EngineLoop final : public RequestLoop {
 public:
    // A request is rejected while max_waiting sequences wait. The model and the metrics must
    // outlive the loop.
    EngineLoop(const FastModel& model, const EngineConfig& config, std::size_t max_waiting,
               Metrics& metrics);
    ~EngineLoop() override;  // no OpenRequest may exist any more

    // Adds the sequences of a request, which are a group; top_logprobs is none if no
    // log-probabilities are asked for. Throws ServerBusy if too many wait, ServerStops after
    // stop_accepting. What the engine rejects ends with an error.
    OpenRequest submit(std::vector<GenerationRequest> requests,
                       std::optional<std::size_t> top_logprobs = {});

    // Of sequences.
    std::size_t stop_accepting() override;
    std::size_t num_open() const override;
    std::size_t cancel_all() override;

 private:
    friend class OpenRequest;
    using SequenceId = std::uint64_t;
    // A sequence of the engine, and who is told about it.
    struct Sequence {
        std::size_t choice = 0;
        std::shared_ptr<EventQueue> events;
        std::optional<std::size_t> top_logprobs{};
        Clock::time_point arrived = Clock::now();
        std::optional<Clock::time_point> last_token{};
        std::optional<std::size_t> number{};  // in the engine, which may reject it
    };
    struct Submission {
        SequenceId sequence_id;
        Sequence sequence;
        GenerationRequest request;
    };

    void cancel(SequenceId sequence_id);
    void run();
    bool take_requests();
    void start(Submission submission);
    void step();
    void pass_token(SequenceId sequence_id, Id id, std::span<const Real> logits);  // (V)
    void end_canceled(SequenceId sequence_id);
    void end(SequenceId sequence_id, SequenceEnd reason);
    void end_all(const SequenceEnd& end);
    void publish_state();

    // Of the loop's thread alone.
    Engine engine_;
    Metrics& metrics_;
    std::map<SequenceId, Sequence> sequences_;
    std::map<std::size_t, SequenceId> id_of_number_;  // of the engine's numbers

    // Of all threads.
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Submission> submissions_;
    std::vector<SequenceId> cancellations_;
    bool cancels_all_ = false, accepts_ = true, stops_ = false;
    SequenceId next_sequence_id_ = 1;
    std::size_t max_waiting_, waiting_in_engine_ = 0, num_open_ = 0;

    std::thread thread_;  // the last member: it uses the others
};

}  // namespace llm::serve
