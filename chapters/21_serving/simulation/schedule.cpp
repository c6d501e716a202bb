#include "chapters/21_serving/simulation/schedule.hpp"

#include <algorithm>

#include "common/tensors/shape.hpp"

namespace llm {
namespace {

// A token that only this request has at this position, unless it belongs to the shared prefix.
Id token_at(const SimulatedRequest& request, std::size_t index, std::size_t position) {
    return Id(position < request.num_shared ? position : 1000 * (index + 1) + position);
}

// Whether a sequence with the same number is among these.
bool contains(const auto& sequences, const ScheduledSequence& sequence) {
    return std::any_of(sequences.begin(), sequences.end(),
                       [&](const auto& each) { return each.number == sequence.number; });
}

RequestState waiting_state(WaitReason reason) {
    switch (reason) {
        case WaitReason::batch:
            return RequestState::waits_for_the_batch;
        case WaitReason::pages:
            return RequestState::waits_for_pages;
        case WaitReason::max_sequences:
            return RequestState::waits_for_a_sequence;
        case WaitReason::prompt:
            return RequestState::waits_for_the_prompt;
    }
    throw ValueError("there is no such reason");
}

class Simulation {
 public:
    Simulation(Scheduler scheduler, const std::vector<SimulatedRequest>& requests)
        : scheduler_(std::move(scheduler)), requests_(requests), numbers_(requests.size()) {
        for (std::size_t i = 0; i < requests.size(); ++i)
            others_.push_back({i, RequestState::arrives_later});
    }

    bool is_finished() const {
        const auto is_later = [](const RequestInStep& each) {
            return each.state == RequestState::arrives_later;
        };
        return scheduler_.idle() && std::none_of(others_.begin(), others_.end(), is_later);
    }

    // Plans a step, describes it, and records it as computed.
    SimulatedStep next_step() {
        ++step_number_;
        SimulatedStep step;
        cancel_requests(step);
        submit_requests(step);
        const std::vector<ScheduledSequence> running = scheduler_.running;
        const std::vector<bool> remembered = remembered_pages();
        const StepPlan plan = plan_step(scheduler_);
        describe_preemptions(step, running);
        describe_evictions(step, remembered);
        describe_running(step, running, plan.tokens);
        describe_waiting(step, running, plan.why_next_waits);
        step.requests.insert(step.requests.end(), others_.begin(), others_.end());
        describe_pages(step);
        compute(step, plan.tokens);
        return step;
    }

 private:
    std::size_t index_of(const ScheduledSequence& sequence) const {
        return arrived_[sequence.number];
    }

    void leave(const ScheduledSequence& sequence, RequestState state) {
        others_.push_back(
            {index_of(sequence), state, sequence.ids.size() - sequence.prompt_len});
    }

    void cancel_requests(SimulatedStep& step) {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i].cancellation != step_number_) continue;
            const std::optional<ScheduledSequence> sequence = find(numbers_[i]);
            if (!sequence) continue;  // it was finished before
            leave(*sequence, RequestState::canceled);
            cancel(scheduler_, numbers_[i]);
            step.events.push_back(RequestIsCanceled{i, sequence->pages});
        }
    }

    std::optional<ScheduledSequence> find(std::size_t number) const {
        for (const ScheduledSequence& each : scheduler_.running)
            if (each.number == number) return each;
        for (const ScheduledSequence& each : scheduler_.waiting)
            if (each.number == number) return each;
        return std::nullopt;
    }

    void submit_requests(SimulatedStep& step) {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            const SimulatedRequest& request = requests_[i];
            if (request.arrival != step_number_) continue;
            std::vector<Id> ids(request.prompt_len);
            for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = token_at(request, i, t);
            numbers_[i] = submit(scheduler_, ids, request.max_new_tokens);
            arrived_.push_back(i);
            std::erase_if(others_,
                          [&](const RequestInStep& each) { return each.request == i; });
            step.events.push_back(RequestArrives{i});
        }
    }

    std::vector<bool> remembered_pages() const {
        std::vector<bool> remembered;
        for (PageId page = 0; page < scheduler_.pool.num_pages(); ++page)
            remembered.push_back(scheduler_.pool.remembers(page));
        return remembered;
    }

    void describe_preemptions(SimulatedStep& step,
                              const std::vector<ScheduledSequence>& running) const {
        for (const ScheduledSequence& sequence : running)
            if (contains(scheduler_.waiting, sequence))
                step.events.push_back(RequestIsPreempted{index_of(sequence), sequence.pages});
    }

    void describe_evictions(SimulatedStep& step, const std::vector<bool>& remembered) const {
        std::vector<PageId> evicted;
        for (PageId page = 0; page < remembered.size(); ++page)
            if (remembered[page] && !scheduler_.pool.remembers(page)) evicted.push_back(page);
        if (!evicted.empty()) step.events.push_back(PagesAreEvicted{evicted});
    }

    void describe_running(SimulatedStep& step, const std::vector<ScheduledSequence>& running,
                          const std::vector<PlannedTokens>& plan) const {
        for (std::size_t i = 0; i < scheduler_.running.size(); ++i) {
            const ScheduledSequence& sequence = scheduler_.running[i];
            const std::size_t num_new = sequence.ids.size() - sequence.prompt_len;
            const bool computes_prompt = !sequence.decodes() || num_new == 0;
            step.requests.push_back(
                {index_of(sequence),
                 computes_prompt ? RequestState::prefill : RequestState::decode, num_new,
                 sequence.num_cached, 0, sequence.pages});
            if (!contains(running, sequence))
                step.events.push_back(RequestJoins{index_of(sequence), sequence.num_cached});
        }
        for (const auto& [i, count, gives_token] : plan) step.requests[i].count = count;
    }

    void describe_waiting(SimulatedStep& step, const std::vector<ScheduledSequence>& running,
                          const std::optional<WaitReason>& why_next_waits) const {
        if (!why_next_waits) return;
        RequestState state = waiting_state(*why_next_waits);
        for (const ScheduledSequence& sequence : scheduler_.waiting) {
            const bool ran = contains(running, sequence);
            step.requests.push_back({index_of(sequence), ran ? RequestState::preempted : state,
                                     sequence.ids.size() - sequence.prompt_len});
            state = RequestState::waits_for_its_turn;
        }
    }

    void describe_pages(SimulatedStep& step) const {
        const std::size_t page_size = scheduler_.pool.page_size();
        for (PageId page = 0; page < scheduler_.pool.num_pages(); ++page)
            step.pages.push_back({{},
                                  scheduler_.pool.num_users(page),
                                  scheduler_.pool.remembers(page) ? page_size : 0});
        for (const RequestInStep& request : step.requests) {
            std::size_t num_left = request.num_cached + request.count;
            for (const PageId page : request.pages) {
                PageInStep& shown = step.pages[page];
                shown.requests.push_back(request.request);
                shown.num_tokens = std::min(num_left, page_size);
                num_left -= shown.num_tokens;
            }
        }
    }

    // Each sequence that gets a token gets the next one of its text.
    void compute(SimulatedStep& step, const std::vector<PlannedTokens>& plan) {
        std::vector<NewToken> new_tokens;
        for (const auto& [i, count, gives_token] : plan) {
            const ScheduledSequence& sequence = scheduler_.running[i];
            const std::size_t index = index_of(sequence);
            if (gives_token)
                new_tokens.push_back({token_at(requests_[index], index, sequence.ids.size())});
        }
        for (const ScheduledSequence& done : record_step(scheduler_, plan, new_tokens)) {
            leave(done, RequestState::finished);
            step.events.push_back(RequestIsFinished{index_of(done)});
        }
    }

    Scheduler scheduler_;
    const std::vector<SimulatedRequest>& requests_;
    std::vector<std::size_t> numbers_;   // [index] the scheduler's number of a request
    std::vector<std::size_t> arrived_;   // [number] its index
    std::vector<RequestInStep> others_;  // that neither run nor wait
    std::size_t step_number_ = 0;
};

}  // namespace

std::string to_text(RequestState state) {
    switch (state) {
        case RequestState::arrives_later:
            return "arrives later";
        case RequestState::waits_for_pages:
            return "waits for pages";
        case RequestState::waits_for_a_sequence:
            return "waits: max sequences";
        case RequestState::waits_for_the_batch:
            return "waits for the batch";
        case RequestState::waits_for_the_prompt:
            return "waits for the prompt";
        case RequestState::waits_for_its_turn:
            return "waits for its turn";
        case RequestState::preempted:
            return "preempted";
        case RequestState::prefill:
            return "prefill";
        case RequestState::decode:
            return "decode";
        case RequestState::finished:
            return "finished";
        case RequestState::canceled:
            return "canceled";
    }
    throw ValueError("there is no such state");
}

std::size_t SimulatedStep::num_tokens() const {
    std::size_t sum = 0;
    for (const RequestInStep& request : requests) sum += request.count;
    return sum;
}

std::vector<SimulatedStep> simulate(Scheduler scheduler,
                                    const std::vector<SimulatedRequest>& requests) {
    Simulation simulation(std::move(scheduler), requests);
    std::vector<SimulatedStep> steps;
    while (!simulation.is_finished()) steps.push_back(simulation.next_step());
    return steps;
}

}  // namespace llm
