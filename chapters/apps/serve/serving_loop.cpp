#include "chapters/apps/serve/serving_loop.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace llm {
namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// The log-softmax of the logits, (V), at the sampled token and at the most likely ones.
SampledToken with_log_probs(Id sampled, std::span<const Real> logits, std::size_t top) {
    const Real highest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const Real logit : logits) sum += std::exp(double(logit) - double(highest));
    const double log_sum = double(highest) + std::log(sum);
    const auto at = [&](Id id) {
        return TokenLogProb{id, double(logits[std::size_t(id)]) - log_sum};
    };

    std::vector<Id> ids(logits.size());
    std::iota(ids.begin(), ids.end(), Id(0));
    const auto middle = ids.begin() + std::ptrdiff_t(std::min(top, ids.size()));
    std::partial_sort(ids.begin(), middle, ids.end(), [&](Id a, Id b) {
        const Real first = logits[std::size_t(a)], second = logits[std::size_t(b)];
        return first > second || (first == second && a < b);
    });
    SampledToken result{at(sampled)};
    std::transform(ids.begin(), middle, std::back_inserter(result.top), at);
    return result;
}

}  // namespace

OpenRequest::~OpenRequest() {
    for (const auto& [choice, ticket] : open_) loop_->cancel(ticket);
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

ServingLoop::ServingLoop(const FastModel& model, const EngineConfig& config,
                         std::size_t max_waiting, Metrics& metrics)
    : engine_(model, config), metrics_(metrics), max_waiting_(max_waiting) {
    publish_state();
    thread_ = std::thread([this] { run(); });
}

ServingLoop::~ServingLoop() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    mail_.notify_one();
    thread_.join();
}

OpenRequest ServingLoop::submit(std::vector<GenerationRequest> requests,
                                std::optional<std::size_t> top_logprobs) {
    OpenRequest open(*this, std::make_shared<EventQueue>());
    {
        const std::lock_guard lock(mutex_);
        if (!accepts_) throw ServerStops();
        if (waiting_in_engine_ + submissions_.size() >= max_waiting_) throw ServerBusy();
        for (GenerationRequest& request : requests) {
            const std::size_t choice = open.open_.size();
            open.open_[choice] = next_ticket_;
            submissions_.push_back(
                {next_ticket_++, {choice, open.events_, top_logprobs}, std::move(request)});
        }
        num_open_ += requests.size();
    }
    mail_.notify_one();
    return open;
}

void ServingLoop::cancel(Ticket ticket) {
    {
        const std::lock_guard lock(mutex_);
        cancellations_.push_back(ticket);
    }
    mail_.notify_one();
}

std::size_t ServingLoop::stop_accepting() {
    const std::lock_guard lock(mutex_);
    accepts_ = false;
    return num_open_;
}

std::size_t ServingLoop::num_open() const {
    const std::lock_guard lock(mutex_);
    return num_open_;
}

std::size_t ServingLoop::cancel_all() {
    const std::lock_guard lock(mutex_);
    cancels_all_ = true;
    mail_.notify_one();
    return num_open_;
}

// The loop of the thread: mail, then a step.
void ServingLoop::run() {
    while (take_mail()) {
        step();
        publish_state();
    }
}

// Waits until there is something to do. Returns false when the loop is to end.
bool ServingLoop::take_mail() {
    std::vector<Submission> submissions;
    std::vector<Ticket> cancellations;
    bool cancels_all = false;
    {
        std::unique_lock lock(mutex_);
        mail_.wait(lock, [&] {
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
    for (const Ticket ticket : cancellations) {
        const auto found = sequences_.find(ticket);
        if (found == sequences_.end()) continue;  // it ended first
        engine_.cancel(*found->second.number);
        end(ticket, {StopReason::interrupted, true});
    }
    if (cancels_all) end_all({StopReason::interrupted, true});
    return true;
}

void ServingLoop::start(Submission submission) {
    const Ticket ticket = submission.ticket;
    const std::size_t prompt_len = submission.request.prompt_ids.size();
    sequences_.emplace(ticket, std::move(submission.sequence));
    submission.request.on_token = [this, ticket](Id id, std::span<const Real> logits) {
        pass_token(ticket, id, logits);
    };
    try {
        const std::size_t number = engine_.submit(std::move(submission.request));
        sequences_.at(ticket).number = number;
        ticket_of_[number] = ticket;
        metrics_.add_prompt(prompt_len);
    } catch (const std::exception& error) {
        end(ticket, {StopReason::interrupted, false, error.what()});
    }
}

// A step that throws ends the sequences that took part in it, and not the server.
void ServingLoop::step() try {
    for (const FinishedRequest& finished : engine_.step())
        end(ticket_of_.at(finished.number), {finished.generated.reason, false, finished.error});
} catch (const std::exception& error) {
    end_all({StopReason::interrupted, false, error.what()});
}

void ServingLoop::pass_token(Ticket ticket, Id id, std::span<const Real> logits) {
    Sequence& sequence = sequences_.at(ticket);
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

void ServingLoop::end(Ticket ticket, SequenceEnd reason) {
    const auto found = sequences_.find(ticket);
    found->second.events->push({found->second.choice, std::move(reason)});
    if (found->second.number) ticket_of_.erase(*found->second.number);
    sequences_.erase(found);
    const std::lock_guard lock(mutex_);
    --num_open_;
}

void ServingLoop::end_all(const SequenceEnd& reason) {
    while (!sequences_.empty()) {
        const auto& [ticket, sequence] = *sequences_.begin();
        engine_.cancel(*sequence.number);
        end(ticket, reason);
    }
}

void ServingLoop::publish_state() {
    const Scheduler& scheduler = engine_.scheduler();
    const PagePool& pool = scheduler.pool;
    metrics_.set_state({scheduler.running.size(), scheduler.waiting.size(),
                        pool.num_pages() - pool.num_unused(), pool.num_pages(),
                        scheduler.num_preemptions});
    const std::lock_guard lock(mutex_);
    waiting_in_engine_ = scheduler.waiting.size();
}

}  // namespace llm
