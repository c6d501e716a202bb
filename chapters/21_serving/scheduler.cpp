#include "chapters/21_serving/scheduler.hpp"

#include <algorithm>

#include "common/tensors/shape.hpp"

namespace llm {
namespace {

// The last sequence gives back its pages and waits again, before all others that wait. If its
// pages are still remembered then, it computes little again.
void preempt_last(Scheduler& scheduler) {
    ScheduledSequence sequence = std::move(scheduler.running.back());
    scheduler.running.pop_back();
    scheduler.pool.release(sequence.pages);
    sequence.pages.clear();
    sequence.num_cached = 0;
    scheduler.waiting.push_front(std::move(sequence));
    ++scheduler.num_preemptions;
}

// Allocates pages until the next `count` tokens of running[i] have room. Later sequences give
// theirs back if there are no others. Returns false if sequence i itself had to.
bool allocate_pages(Scheduler& scheduler, std::size_t i, std::size_t count) {
    const std::size_t num_tokens = scheduler.running[i].num_cached + count;
    while (i < scheduler.running.size()) {
        std::vector<PageId>& pages = scheduler.running[i].pages;
        if (pages.size() >= scheduler.pool.pages_for(num_tokens)) return true;
        if (const std::optional<PageId> page = scheduler.pool.allocate())
            pages.push_back(*page);
        else
            preempt_last(scheduler);
    }
    return false;
}

PlannedTokens planned(const Scheduler& scheduler, std::size_t i, std::size_t count) {
    return {i, count, count == scheduler.running[i].num_left()};
}

// Moves the first sequence that waits to those that run, if the pages of its tokens, and of
// one token more, are unused; otherwise returns why it waits. It begins after the longest
// remembered prefix; at least its last token is computed, because its logits are needed.
std::optional<WaitReason> admit_next(Scheduler& scheduler, std::size_t budget) {
    if (scheduler.running.size() == scheduler.config.max_sequences)
        return WaitReason::max_sequences;
    if (budget == 0) return WaitReason::budget;
    ScheduledSequence& next = scheduler.waiting.front();
    PagePool& pool = scheduler.pool;
    if (scheduler.config.prefix_cache)
        next.pages = pool.share_prefix(std::span(next.ids).first(next.ids.size() - 1));
    const std::size_t num_needed = pool.pages_for(next.ids.size() + 1) - next.pages.size();
    if (num_needed > pool.num_unused()) {
        pool.release(next.pages);
        next.pages.clear();
        return WaitReason::pages;
    }
    next.num_cached = next.pages.size() * pool.page_size();
    scheduler.running.push_back(std::move(next));
    scheduler.waiting.pop_front();
    return std::nullopt;
}

// Plans the sequences that run, in the order of arrival. Returns what is left of
// max_step_tokens.
std::size_t plan_running(Scheduler& scheduler, std::vector<PlannedTokens>& plan) {
    std::vector<ScheduledSequence>& running = scheduler.running;

    // Each sequence that decodes gets one token; prompts share the others.
    std::size_t budget = scheduler.config.max_step_tokens;
    for (const ScheduledSequence& sequence : running) budget -= sequence.decodes() ? 1 : 0;
    const auto chunk_of = [&](const ScheduledSequence& sequence) {
        return sequence.decodes() ? 1 : std::min(sequence.num_left(), budget);
    };
    for (std::size_t i = 0; i < running.size(); ++i) {
        const std::size_t count = chunk_of(running[i]);
        if (count == 0 || !allocate_pages(scheduler, i, count)) continue;
        if (!running[i].decodes()) budget -= count;
        plan.push_back(planned(scheduler, i, count));
    }
    return budget;
}

}  // namespace

Scheduler make_scheduler(const SchedulerConfig& config, std::size_t num_pages,
                         std::size_t page_size) {
    require(config.max_sequences > 0 && config.max_sequences <= config.max_step_tokens,
            "scheduler: {} sequences do not fit into steps of {} tokens", config.max_sequences,
            config.max_step_tokens);
    return {config, PagePool(num_pages, page_size)};
}

std::size_t submit(Scheduler& scheduler, std::vector<Id> prompt_ids,
                   std::size_t max_new_tokens) {
    require(!prompt_ids.empty(), "serving: the prompt must have at least one token");
    require(max_new_tokens > 0, "serving: max_new_tokens must be at least 1");
    const std::size_t prompt_len = prompt_ids.size();
    const std::size_t num_needed = scheduler.pool.pages_for(prompt_len + max_new_tokens);
    require(num_needed <= scheduler.pool.num_pages(),
            "serving: {} tokens of a prompt and {} new ones need {} pages of {}, but there are "
            "{}",
            prompt_len, max_new_tokens, num_needed, scheduler.pool.page_size(),
            scheduler.pool.num_pages());
    const std::size_t number = scheduler.num_arrived++;
    scheduler.waiting.push_back({number, std::move(prompt_ids), prompt_len, max_new_tokens});
    return number;
}

StepPlan plan_step(Scheduler& scheduler) {
    const bool batch_runs = !scheduler.config.continuous && !scheduler.running.empty();
    const std::size_t num_preemptions = scheduler.num_preemptions;
    StepPlan plan;
    std::size_t budget = plan_running(scheduler, plan.tokens);

    // Admit sequences that wait, until there is a reason why the next one cannot join.
    const bool preempts = scheduler.num_preemptions > num_preemptions;
    while (!scheduler.waiting.empty()) {
        plan.why_first_waits = batch_runs ? WaitReason::batch
                               : preempts ? WaitReason::pages
                                          : admit_next(scheduler, budget);
        if (plan.why_first_waits) break;
        const std::size_t i = scheduler.running.size() - 1;
        const std::size_t count = std::min(scheduler.running[i].num_left(), budget);
        allocate_pages(scheduler, i, count);
        budget -= count;
        plan.tokens.push_back(planned(scheduler, i, count));
    }
    return plan;
}

namespace {

// Moves the finished ones out of the running sequences, and releases their pages.
std::vector<ScheduledSequence> take_finished(Scheduler& scheduler,
                                             const std::vector<bool>& finished) {
    std::vector<ScheduledSequence> done, others;
    for (std::size_t i = 0; i < scheduler.running.size(); ++i) {
        if (finished[i]) scheduler.pool.release(scheduler.running[i].pages);
        (finished[i] ? done : others).push_back(std::move(scheduler.running[i]));
    }
    scheduler.running = std::move(others);
    return done;
}

}  // namespace

std::vector<ScheduledSequence> record_step(Scheduler& scheduler,
                                           std::span<const PlannedTokens> plan,
                                           std::span<const NewToken> new_tokens) {
    std::size_t num_given = 0;
    std::vector<bool> finished(scheduler.running.size(), false);
    for (const auto& [i, count, gives_token] : plan) {
        ScheduledSequence& sequence = scheduler.running.at(i);
        const std::size_t num_full = sequence.num_cached / scheduler.pool.page_size();
        sequence.num_cached += count;
        const bool fills_page = sequence.num_cached / scheduler.pool.page_size() > num_full;
        if (scheduler.config.prefix_cache && fills_page)
            scheduler.pool.remember(std::span(sequence.ids).first(sequence.num_cached),
                                    sequence.pages);
        if (!gives_token) continue;
        require(num_given < new_tokens.size(), "scheduler: only {} new tokens are given",
                new_tokens.size());
        const auto [id, ends_sequence] = new_tokens[num_given++];
        if (!ends_sequence) sequence.ids.push_back(id);
        finished[i] = ends_sequence ||
                      sequence.ids.size() == sequence.prompt_len + sequence.max_new_tokens;
    }
    return take_finished(scheduler, finished);
}

bool cancel(Scheduler& scheduler, std::size_t number) {
    const auto has_number = [&](const ScheduledSequence& each) {
        return each.number == number;
    };
    const auto found =
        std::find_if(scheduler.running.begin(), scheduler.running.end(), has_number);
    if (found != scheduler.running.end()) {
        scheduler.pool.release(found->pages);
        scheduler.running.erase(found);
        return true;
    }
    return std::erase_if(scheduler.waiting, has_number) > 0;
}

}  // namespace llm
