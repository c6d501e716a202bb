// What the tests of chapter 21's scheduler share: a memory and a model that need no matrices.
#pragma once

#include <map>

#include "chapters/21_serving/scheduler.hpp"
#include "common/numbers/random.hpp"

namespace llm {

// A number that depends on all tokens of a sequence, in order.
inline std::uint64_t hash_of(std::span<const Id> ids) {
    std::uint64_t hash = 14695981039346656037u;
    for (const Id id : ids) hash = (hash ^ std::uint64_t(id + 1)) * 1099511628211u;
    return hash;
}

// The token after a sequence, from 0 to 6; 0 ends it.
inline NewToken next_of(std::span<const Id> ids) {
    const Id id = Id((hash_of(ids) >> 20) % 7);
    return {id, id == 0};
}

// What a request answers if it is alone.
inline std::vector<Id> answer_alone(std::vector<Id> ids, std::size_t max_new_tokens) {
    const std::size_t prompt_len = ids.size();
    while (ids.size() < prompt_len + max_new_tokens) {
        const NewToken next = next_of(ids);
        if (next.ends_sequence) break;
        ids.push_back(next.id);
    }
    return ids;
}

// Plans a step, gives token 1 wherever one is due, and returns the planned counts, by the
// number of the sequence.
using Counts = std::map<std::size_t, std::size_t>;
inline Counts take_step(Scheduler& scheduler) {
    const std::vector<PlannedTokens> plan = plan_step(scheduler).tokens;
    Counts result;
    for (const auto& [i, count, gives_token] : plan)
        result[scheduler.running[i].number] = count;
    record_step(scheduler, plan, std::vector<NewToken>(plan.size(), {1, false}));
    return result;
}

// Computes steps: each slot of the memory holds, instead of keys and values, the hash of the
// tokens up to its own. A step reads the slots of all earlier tokens, as attention does.
struct FakeModel {
    std::vector<std::uint64_t> memory;
    bool reads_are_right = true;

    std::vector<NewToken> compute(const Scheduler& scheduler,
                                  std::span<const PlannedTokens> plan) {
        std::vector<NewToken> new_tokens;
        for (const auto& [i, count, gives_token] : plan) {
            const ScheduledSequence& sequence = scheduler.running.at(i);
            const std::span<const Id> ids = sequence.ids;
            const std::size_t page_size = scheduler.pool.page_size();
            for (std::size_t p = 0; p < sequence.num_cached + count; ++p) {
                const std::size_t slot =
                    sequence.pages.at(p / page_size) * page_size + p % page_size;
                if (p >= sequence.num_cached) memory.at(slot) = hash_of(ids.first(p + 1));
                reads_are_right = reads_are_right && memory[slot] == hash_of(ids.first(p + 1));
            }
            if (gives_token) new_tokens.push_back(next_of(ids));
        }
        return new_tokens;
    }
};

}  // namespace llm
