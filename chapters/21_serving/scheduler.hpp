// Chapter 21, file 2 of 3: which tokens of which sequences are computed next, and the pages
// that each sequence gets.
#pragma once

#include <deque>
#include <vector>

#include "chapters/21_serving/page_pool.hpp"

namespace llm {

// A request whose text is being generated. The keys and values of its first num_cached tokens
// are in its pages; the tokens after them are still to be computed.
struct ScheduledSequence {
    std::size_t number = 0;      // in the order of arrival
    std::vector<Id> ids;         // the prompt, then the new tokens
    std::size_t prompt_len = 0;  // tokens of the prompt
    std::size_t max_new_tokens = 0;
    std::optional<std::size_t> group{};  // none: a group of its own
    std::size_t num_cached = 0;
    std::vector<PageId> pages{};

    std::size_t num_left() const { return ids.size() - num_cached; }
    bool decodes() const { return num_left() == 1; }
};

struct SchedulerConfig {
    std::size_t max_sequences = 16;    // that run at the same time
    std::size_t max_step_tokens = 64;  // that are computed in one step
    bool prefix_cache = true;
    bool continuous = true;  // false: static batching, sequences join when none is running
};

// Continuous batching: a sequence joins or leaves at any step (Orca). Prompts are computed in
// chunks, so that a long one does not stop the others (Sarathi-Serve). If no page is left, the
// sequence that arrived last gives back its pages and is computed again later (vLLM:
// preemption by recomputation). Sources: Yu et al., 2022; Agrawal et al., 2024; Kwon et al.,
// 2023.
//
// The sequences of one client's request are a group. Groups get equal parts of a step, so a
// long prompt or a request for many answers does not delay the others.
//
// The scheduler has no model, no clock and no thread: its state alone decides what comes next.
struct Scheduler {
    SchedulerConfig config;
    PagePool pool;
    std::deque<ScheduledSequence> waiting{};   // in the order of arrival
    std::vector<ScheduledSequence> running{};  // in the order of arrival
    std::size_t num_arrived = 0, num_preemptions = 0;

    bool idle() const { return waiting.empty() && running.empty(); }
};
// Throws ValueError unless 1 <= max_sequences <= max_step_tokens.
Scheduler make_scheduler(const SchedulerConfig& config, std::size_t num_pages,
                         std::size_t page_size);

// Adds a request to those that wait; returns its number. Without a group it is one of its own,
// whatever number it has. Throws ValueError if the prompt is empty, if no token is to be
// generated, or if all pages together are too few for its tokens.
std::size_t submit(Scheduler& scheduler, std::vector<Id> prompt_ids, std::size_t max_new_tokens,
                   std::optional<std::size_t> group = {});

// What is computed in a step: the next `count` tokens of running[sequence]. If they are its
// last ones, their logits give a new token.
struct PlannedTokens {
    std::size_t sequence = 0, count = 0;
    bool gives_token = false;
};

// Why the next sequence that waits does not join the step.
enum class WaitReason {
    batch,          // static batching: another batch runs
    pages,          // too few are unused, or a sequence has just given back its own
    max_sequences,  // so many are running
    prompt          // a sequence of its group still computes pages that it may share
};
struct StepPlan {
    std::vector<PlannedTokens> tokens;
    std::optional<WaitReason> why_next_waits;  // none: no sequence waits
};

// Plans a step, and allocates its pages. First sequences that wait join: always the next one of
// the group of which the fewest run. Then each sequence that decodes gets one token, and the
// prompts of the groups share the other max_step_tokens equally.
//
// Each request finishes. Take the oldest one that is not finished. If it runs, it advances, and
// is never preempted. If it waits, none of its group runs, since those would be younger; so it
// is the next one, none joins before it, and those that run finish or give back their pages.
StepPlan plan_step(Scheduler& scheduler);

// Records a step that was computed, with the new token of each planned sequence that gives one.
// Returns the sequences that are finished; their pages are free again.
struct NewToken {
    Id id = 0;
    bool ends_sequence = false;  // an EOS token, which is not added
};
std::vector<ScheduledSequence> record_step(Scheduler& scheduler,
                                           std::span<const PlannedTokens> plan,
                                           std::span<const NewToken> new_tokens);

// Removes a request, running or waiting, and frees its pages. Returns false if there is none
// with this number. Not between plan_step and record_step.
bool cancel(Scheduler& scheduler, std::size_t number);

}  // namespace llm
