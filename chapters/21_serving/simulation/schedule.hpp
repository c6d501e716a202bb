// Chapter 21, simulation: the steps of a server without a model: its scheduler alone.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "chapters/21_serving/scheduler.hpp"
#include "chapters/21_serving/simulation/requests.hpp"

namespace llm {

// What a request does in a step.
enum class RequestState {
    arrives_later,
    waits_for_pages,
    waits_for_a_sequence,  // max_sequences are running
    waits_for_the_batch,   // static batching
    waits_for_the_prompt,  // of another request of its group
    waits_for_its_turn,    // another request waits before it
    preempted,             // it has given back its pages in this step
    prefill,
    decode,
    finished,
    canceled
};
std::string to_text(RequestState state);

// A request in a step that is planned, before it is computed.
struct RequestInStep {
    std::size_t request = 0;  // its index in the list of requests
    RequestState state = RequestState::arrives_later;
    std::size_t num_new = 0;     // new tokens that it has
    std::size_t num_cached = 0;  // tokens whose keys and values are in its pages
    std::size_t count = 0;       // tokens that the step computes
    std::vector<PageId> pages{};
};

struct PageInStep {
    std::vector<std::size_t> requests{};  // that use it
    std::size_t num_users = 0;
    // Slots that are in use when the step is computed. A page without users has some if the
    // prefix cache remembers it.
    std::size_t num_tokens = 0;
};

// What happens to a request, or to pages of the prefix cache, in a step.
struct RequestArrives {
    std::size_t request = 0;
    bool operator==(const RequestArrives&) const = default;
};
struct RequestJoins {
    std::size_t request = 0;
    std::size_t num_cached = 0;  // its first tokens, which are in the prefix cache
    bool operator==(const RequestJoins&) const = default;
};
struct RequestIsPreempted {
    std::size_t request = 0;
    std::vector<PageId> pages{};  // that it gives back
    bool operator==(const RequestIsPreempted&) const = default;
};
struct RequestIsCanceled {
    std::size_t request = 0;
    std::vector<PageId> pages{};  // that it gives back
    bool operator==(const RequestIsCanceled&) const = default;
};
struct RequestIsFinished {  // after the step
    std::size_t request = 0;
    bool operator==(const RequestIsFinished&) const = default;
};
struct PagesAreEvicted {
    std::vector<PageId> pages{};
    bool operator==(const PagesAreEvicted&) const = default;
};
using ScheduleEvent = std::variant<RequestArrives, RequestJoins, RequestIsPreempted,
                                   RequestIsCanceled, RequestIsFinished, PagesAreEvicted>;

struct SimulatedStep {
    std::vector<ScheduleEvent> events{};    // in their order
    std::vector<RequestInStep> requests{};  // running, waiting, then the others
    std::vector<PageInStep> pages{};

    std::size_t num_tokens() const;
};

// The steps until all requests are finished or canceled. Each request gets all of its new
// tokens. Throws ValueError if there are too few pages for a request.
std::vector<SimulatedStep> simulate(Scheduler scheduler,
                                    const std::vector<SimulatedRequest>& requests);

}  // namespace llm
