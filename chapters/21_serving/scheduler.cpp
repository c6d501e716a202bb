#include "chapters/21_serving/scheduler.hpp"

#include <algorithm>

#include "common/tensors/shape.hpp"

namespace llm {
namespace {

bool same_group(const ScheduledSequence& a, const ScheduledSequence& b) {
    return a.group ? a.group == b.group : a.number == b.number;
}

// Running and waiting sequences are kept in the order of arrival.
void insert_in_order(auto& sequences, ScheduledSequence sequence) {
    const auto later = std::find_if(
        sequences.begin(), sequences.end(),
        [&](const ScheduledSequence& each) { return each.number > sequence.number; });
    sequences.insert(later, std::move(sequence));
}

// The sequence gives back its pages and waits again. If they are still remembered when it runs
// again, it computes little twice.
void preempt(Scheduler& scheduler, std::size_t i) {
    ScheduledSequence sequence = std::move(scheduler.running[i]);
    scheduler.running.erase(scheduler.running.begin() + std::ptrdiff_t(i));
    scheduler.pool.release(sequence.pages);
    sequence.pages.clear();
    sequence.num_cached = 0;
    insert_in_order(scheduler.waiting, std::move(sequence));
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
            preempt(scheduler, scheduler.running.size() - 1);
    }
    return false;
}

// The pages that a sequence lacks for its tokens, and for one token more.
std::size_t pages_lacking(const PagePool& pool, const ScheduledSequence& sequence) {
    return pool.pages_for(sequence.ids.size() + 1) - sequence.pages.size();
}

// Moves waiting[i] to the sequences that run, or returns why it cannot run now. The pages that
// running sequences lack are not for it: otherwise it would join only to be preempted. It
// begins after the longest remembered prefix; at least its last token is computed, because its
// logits are needed.
std::optional<WaitReason> join(Scheduler& scheduler, std::size_t i) {
    if (scheduler.running.size() == scheduler.config.max_sequences)
        return WaitReason::max_sequences;
    ScheduledSequence& next = scheduler.waiting[i];
    PagePool& pool = scheduler.pool;
    if (scheduler.config.prefix_cache)
        next.pages = pool.share_prefix(std::span(next.ids).first(next.ids.size() - 1));
    std::size_t num_lacking = pages_lacking(pool, next);
    for (const ScheduledSequence& each : scheduler.running)
        num_lacking += pages_lacking(pool, each);
    if (num_lacking > pool.num_unused()) {
        pool.release(next.pages);
        next.pages.clear();
        return WaitReason::pages;
    }
    next.num_cached = next.pages.size() * pool.page_size();
    insert_in_order(scheduler.running, std::move(next));
    scheduler.waiting.erase(scheduler.waiting.begin() + std::ptrdiff_t(i));
    return std::nullopt;
}

// Whether the sequence will fill another page with tokens of its prompt that others of its
// group can share.
bool fills_prompt_page(const Scheduler& scheduler, const ScheduledSequence& sequence) {
    const std::size_t page_size = scheduler.pool.page_size();
    return scheduler.config.prefix_cache && scheduler.config.continuous &&
           (sequence.prompt_len - 1) / page_size > sequence.num_cached / page_size;
}

// The sequence that joins next: the first one of the group of which the fewest run. None if
// each waits until another one of its group has filled the pages of its prompt.
std::optional<std::size_t> next_to_join(const Scheduler& scheduler) {
    std::optional<std::size_t> next;
    std::size_t fewest = 0;
    for (std::size_t i = 0; i < scheduler.waiting.size(); ++i) {
        std::size_t num_running = 0;
        bool can_share_more = false;
        for (const ScheduledSequence& each : scheduler.running) {
            if (!same_group(each, scheduler.waiting[i])) continue;
            ++num_running;
            can_share_more = can_share_more || fills_prompt_page(scheduler, each);
        }
        if (can_share_more || (next && num_running >= fewest)) continue;
        next = i;
        fewest = num_running;
    }
    return next;
}

// The last sequence of the group of which the most run, if these are two or more.
std::optional<std::size_t> last_of_largest_group(const Scheduler& scheduler) {
    const std::vector<ScheduledSequence>& running = scheduler.running;
    std::optional<std::size_t> last;
    std::ptrdiff_t most = 1;
    for (std::size_t i = 0; i < running.size(); ++i) {
        const std::ptrdiff_t count =
            std::count_if(running.begin(), running.end(),
                          [&](const auto& each) { return same_group(each, running[i]); });
        if (count < 2 || count < most) continue;
        last = i;
        most = count;
    }
    return last;
}

// Moves the next sequence to those that run, or returns why it waits. If none of its group
// runs, larger groups make room, but keep one sequence each: so no two groups take each other's
// places in turn.
std::optional<WaitReason> admit_next(Scheduler& scheduler) {
    while (const std::optional<std::size_t> next = next_to_join(scheduler)) {
        const std::optional<WaitReason> reason = join(scheduler, *next);
        if (!reason) return std::nullopt;
        const bool group_runs = std::any_of(
            scheduler.running.begin(), scheduler.running.end(),
            [&](const auto& each) { return same_group(each, scheduler.waiting[*next]); });
        const std::optional<std::size_t> last = last_of_largest_group(scheduler);
        if (group_runs || !last) return reason;
        preempt(scheduler, *last);
    }
    return WaitReason::prompt;
}

// The sequences of a group that compute their prompts, in the order of arrival.
struct GroupPrompts {
    std::vector<std::size_t> sequences{};
    std::size_t num_left = 0;  // tokens
};

// Those with the fewest tokens first.
std::vector<GroupPrompts> prompts_of_groups(std::span<const ScheduledSequence> running) {
    std::vector<GroupPrompts> groups;
    for (std::size_t i = 0; i < running.size(); ++i) {
        if (running[i].decodes()) continue;
        auto group = std::find_if(groups.begin(), groups.end(), [&](const GroupPrompts& each) {
            return same_group(running[each.sequences[0]], running[i]);
        });
        if (group == groups.end()) group = groups.insert(group, GroupPrompts{});
        group->sequences.push_back(i);
        group->num_left += running[i].num_left();
    }
    std::stable_sort(
        groups.begin(), groups.end(),
        [](const GroupPrompts& a, const GroupPrompts& b) { return a.num_left < b.num_left; });
    return groups;
}

// How many tokens of each running sequence a step computes: one of each that decodes; the
// others are divided between the groups that have prompts, and in a group the oldest sequence
// comes first. What a group does not need, the others share (max-min fairness). There is a
// token for each group, because max_sequences <= max_step_tokens.
std::vector<std::size_t> tokens_of_step(const Scheduler& scheduler) {
    const std::vector<ScheduledSequence>& running = scheduler.running;
    std::vector<std::size_t> counts(running.size());
    std::size_t budget = scheduler.config.max_step_tokens;
    for (std::size_t i = 0; i < running.size(); ++i)
        if (running[i].decodes()) counts[i] = 1, --budget;

    const std::vector<GroupPrompts> groups = prompts_of_groups(running);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        std::size_t part = std::min(groups[g].num_left, budget / (groups.size() - g));
        budget -= part;
        for (const std::size_t i : groups[g].sequences) {
            counts[i] = std::min(running[i].num_left(), part);
            part -= counts[i];
        }
    }
    return counts;
}

}  // namespace

Scheduler make_scheduler(const SchedulerConfig& config, std::size_t num_pages,
                         std::size_t page_size) {
    require(config.max_sequences > 0 && config.max_sequences <= config.max_step_tokens,
            "scheduler: {} sequences do not fit into steps of {} tokens", config.max_sequences,
            config.max_step_tokens);
    return {config, PagePool(num_pages, page_size)};
}

std::size_t submit(Scheduler& scheduler, std::vector<Id> prompt_ids, std::size_t max_new_tokens,
                   std::optional<std::size_t> group) {
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
    scheduler.waiting.push_back(
        {number, std::move(prompt_ids), prompt_len, max_new_tokens, group});
    return number;
}

StepPlan plan_step(Scheduler& scheduler) {
    const bool batch_runs = !scheduler.config.continuous && !scheduler.running.empty();
    StepPlan plan;

    // Admit sequences that wait, until there is a reason why the next one cannot join.
    while (!scheduler.waiting.empty() && !plan.why_next_waits)
        plan.why_next_waits = batch_runs ? WaitReason::batch : admit_next(scheduler);

    // Divide the tokens of the step, and allocate their pages in the order of arrival.
    const std::vector<std::size_t> counts = tokens_of_step(scheduler);
    for (std::size_t i = 0; i < scheduler.running.size(); ++i) {
        if (counts[i] == 0 || !allocate_pages(scheduler, i, counts[i])) continue;
        const bool gives_token = counts[i] == scheduler.running[i].num_left();
        plan.tokens.push_back({i, counts[i], gives_token});
    }
    if (!scheduler.waiting.empty() && !plan.why_next_waits)
        plan.why_next_waits = WaitReason::pages;
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
