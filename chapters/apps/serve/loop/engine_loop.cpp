#include "chapters/apps/serve/loop/engine_loop.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "common/tensors/argsort.hpp"

namespace llm::serve {
namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// The log-softmax of the logits, (V), at the sampled token and at the most likely ones.
SampledToken with_log_probs(Id sampled, std::span<const Real> logits, std::size_t top) {
    const double log_sum = log_sum_exp(logits);
    const auto at = [&](Id id) {
        return TokenLogProb{id, double(logits[std::size_t(id)]) - log_sum};
    };

    SampledToken result{at(sampled)};
    for (const std::size_t id : argsort_descending(logits, top))
        result.top.push_back(at(Id(id)));
    return result;
}

}  // namespace

OpenRequest::~OpenRequest() {
    for (const auto& [choice, sequence_id] : open_) loop_->cancel(sequence_id);
}

std::optional<SequenceEvent> OpenRequest::next_event(Clock::time_point until) {
    while (std::optional<SequenceEvent> event = events_->pop_until(until)) {
        if (!open_.contains(event->choice)) continue;  // it was canceled in the meantime
        if (std::holds_alternative<SequenceEnd>(event->what)) open_.erase(event->choice);
        return event;
    }
    return {};
}

void OpenRequest::cancel(std::size_t choice) {
    const auto found = open_.find(choice);
    if (found == open_.end()) return;
    loop_->cancel(found->second);
    open_.erase(found);
}

EngineLoop::EngineLoop(const FastModel& model, const EngineConfig& config,
                       std::size_t max_waiting, Metrics& metrics)
    : engine_(model, config), metrics_(metrics), max_waiting_(max_waiting) {
    publish_state();
    thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

OpenRequest EngineLoop::submit(std::vector<GenerationRequest> requests,
                               std::optional<std::size_t> top_logprobs) {
    OpenRequest open(*this, std::make_shared<EventQueue>());
    {
        const std::lock_guard lock(mutex_);
        if (!accepts_) throw ServerStops();
        if (waiting_in_engine_ + submissions_.size() >= max_waiting_) throw ServerBusy();
        const SequenceId first_id = next_sequence_id_;
        for (GenerationRequest& request : requests) {
            request.group = first_id;
            const std::size_t choice = open.open_.size();
            open.open_[choice] = next_sequence_id_;
            submissions_.push_back({next_sequence_id_++,
                                    {choice, open.events_, top_logprobs},
                                    std::move(request)});
        }
        num_open_ += requests.size();
    }
    changed_.notify_one();
    return open;
}

void EngineLoop::cancel(SequenceId sequence_id) {
    {
        const std::lock_guard lock(mutex_);
        cancellations_.push_back(sequence_id);
    }
    changed_.notify_one();
}

std::size_t EngineLoop::stop_accepting() {
    const std::lock_guard lock(mutex_);
    accepts_ = false;
    return num_open_;
}

std::size_t EngineLoop::num_open() const {
    const std::lock_guard lock(mutex_);
    return num_open_;
}

std::size_t EngineLoop::cancel_all() {
    const std::lock_guard lock(mutex_);
    cancels_all_ = true;
    changed_.notify_one();
    return num_open_;
}

// The loop of the thread: what other threads ask for, then a step.
void EngineLoop::run() {
    while (take_requests()) {
        step();
        publish_state();
    }
}

// Waits until there is something to do. Returns false when the loop is to end.
bool EngineLoop::take_requests() {
    std::vector<Submission> submissions;
    std::vector<SequenceId> cancellations;
    bool cancels_all = false;
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
            return stops_ || cancels_all_ || !submissions_.empty() || !cancellations_.empty() ||
                   !engine_.idle();
        });
        if (stops_) return false;
        submissions.swap(submissions_);
        cancellations.swap(cancellations_);
        cancels_all = std::exchange(cancels_all_, false);
        waiting_in_engine_ += submissions.size();  // until the next publish_state
    }
    for (Submission& submission : submissions) start(std::move(submission));
    for (const SequenceId sequence_id : cancellations) end_canceled(sequence_id);
    if (cancels_all) end_all({StopReason::interrupted, true});
    return true;
}

void EngineLoop::end_canceled(SequenceId sequence_id) {
    const auto found = sequences_.find(sequence_id);
    if (found == sequences_.end()) return;  // it ended first
    engine_.cancel(*found->second.number);
    end(sequence_id, {StopReason::interrupted, true});
}

void EngineLoop::start(Submission submission) {
    const SequenceId sequence_id = submission.sequence_id;
    const std::size_t prompt_len = submission.request.prompt_ids.size();
    sequences_.emplace(sequence_id, std::move(submission.sequence));
    submission.request.on_token = [this, sequence_id](Id id, std::span<const Real> logits) {
        pass_token(sequence_id, id, logits);
    };
    try {
        const std::size_t number = engine_.submit(std::move(submission.request));
        sequences_.at(sequence_id).number = number;
        id_of_number_[number] = sequence_id;
        metrics_.add_prompt(prompt_len);
    } catch (const std::exception& error) {
        end(sequence_id, {StopReason::interrupted, false, error.what()});
    }
}

// A step that throws ends the sequences that took part in it, and not the server.
void EngineLoop::step() try {
    for (const FinishedRequest& finished : engine_.step())
        end(id_of_number_.at(finished.number),
            {finished.generated.reason, false, finished.error});
} catch (const std::exception& error) {
    end_all({StopReason::interrupted, false, error.what()});
}

void EngineLoop::pass_token(SequenceId sequence_id, Id id, std::span<const Real> logits) {
    Sequence& sequence = sequences_.at(sequence_id);
    const Clock::time_point now = Clock::now();
    if (sequence.last_token)
        metrics_.add_next_token(seconds_between(*sequence.last_token, now));
    else
        metrics_.add_first_token(seconds_between(sequence.arrived, now));
    sequence.last_token = now;
    sequence.events->push(
        {sequence.choice, sequence.top_logprobs
                              ? with_log_probs(id, logits, *sequence.top_logprobs)
                              : SampledToken{{id, 0}}});
}

void EngineLoop::end(SequenceId sequence_id, SequenceEnd reason) {
    const auto found = sequences_.find(sequence_id);
    found->second.events->push({found->second.choice, std::move(reason)});
    if (found->second.number) id_of_number_.erase(*found->second.number);
    sequences_.erase(found);
    const std::lock_guard lock(mutex_);
    --num_open_;
}

void EngineLoop::end_all(const SequenceEnd& reason) {
    while (!sequences_.empty()) {
        const auto& [sequence_id, sequence] = *sequences_.begin();
        engine_.cancel(*sequence.number);
        end(sequence_id, reason);
    }
}

void EngineLoop::publish_state() {
    const Scheduler& scheduler = engine_.scheduler();
    const PagePool& pool = scheduler.pool;
    metrics_.set_state({scheduler.running.size(), scheduler.waiting.size(),
                        pool.num_pages() - pool.num_unused(), pool.num_pages(),
                        scheduler.num_preemptions});
    const std::lock_guard lock(mutex_);
    waiting_in_engine_ = scheduler.waiting.size();
}

}  // namespace llm::serve
