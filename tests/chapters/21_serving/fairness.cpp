// Chapter 21's scheduler with long prompts and requests for many answers: who gets which part
// of a step, who joins next, and who makes room.
#include <algorithm>
#include <set>

#include "tests/support/check.hpp"
#include "tests/support/serving_helpers.hpp"

using namespace llm;

namespace {

// A prompt of tokens that no other prompt has.
std::vector<Id> fresh_prompt(std::size_t length) {
    static Id next = 0;
    std::vector<Id> ids(length);
    for (Id& id : ids) id = ++next;
    return ids;
}

void submit_group(Scheduler& scheduler, std::size_t group, std::size_t count,
                  const std::vector<Id>& ids, std::size_t max_new_tokens) {
    for (std::size_t i = 0; i < count; ++i) submit(scheduler, ids, max_new_tokens, group);
}

std::vector<std::size_t> numbers_of(const auto& sequences) {
    std::vector<std::size_t> numbers;
    for (const ScheduledSequence& each : sequences) numbers.push_back(each.number);
    return numbers;
}
using Numbers = std::vector<std::size_t>;

void finish(Scheduler& scheduler) {
    for (int i = 0; i < 10000 && !scheduler.idle(); ++i) take_step(scheduler);
    REQUIRE(scheduler.idle());
}

// The steps until a request of `length` tokens, submitted now, gets its first token.
std::size_t steps_to_first_token(Scheduler& scheduler, std::size_t length) {
    const std::size_t number = submit(scheduler, fresh_prompt(length), 8);
    std::size_t num_computed = 0;
    for (std::size_t steps = 1; steps < 1000; ++steps) {
        const Counts counts = take_step(scheduler);
        if (counts.contains(number)) num_computed += counts.at(number);
        if (num_computed >= length) return steps;
    }
    return 1000;
}

}  // namespace

TEST_CASE("the first token of a short request does not wait for a prompt of 1,900 tokens") {
    Scheduler scheduler = make_scheduler({16, 64}, 512, 16);
    submit(scheduler, fresh_prompt(1900), 8);
    CHECK(take_step(scheduler) == Counts{{0, 64}});
    CHECK(steps_to_first_token(scheduler, 20) == 1);
    CHECK(take_step(scheduler) == Counts{{0, 63}, {1, 1}});  // it gets all that is left

    // After four of them, a fifth of each step is its part.
    scheduler = make_scheduler({16, 64}, 512, 16);
    for (int i = 0; i < 4; ++i) submit(scheduler, fresh_prompt(1900), 8);
    take_step(scheduler);
    CHECK(steps_to_first_token(scheduler, 20) == 2);
}

TEST_CASE("the first token of a short request does not wait for 8 requests for 16 answers") {
    Scheduler scheduler = make_scheduler({16, 64}, 512, 16);
    for (std::size_t group = 0; group < 8; ++group)
        submit_group(scheduler, group, 16, fresh_prompt(20), 64);
    for (int i = 0; i < 10; ++i) take_step(scheduler);
    CHECK(scheduler.running.size() == 16);
    CHECK(steps_to_first_token(scheduler, 20) == 1);
    CHECK(scheduler.num_preemptions == 1);
    finish(scheduler);
    CHECK(scheduler.num_preemptions == 1);  // the one that made room comes back by itself
}

TEST_CASE("a short request gets pages from a client whose answers fill the memory") {
    Scheduler scheduler = make_scheduler({16, 64}, 64, 16);
    submit_group(scheduler, 0, 16, fresh_prompt(20), 200);
    for (int i = 0; i < 1000 && scheduler.pool.num_unused() > 0; ++i) take_step(scheduler);
    CHECK(steps_to_first_token(scheduler, 100) <= 3);
    finish(scheduler);
    CHECK(scheduler.pool.num_unused() == 64);
}

TEST_CASE("groups share a step equally, and what one does not need, the others get") {
    Scheduler scheduler = make_scheduler({6, 20}, 100, 4);
    submit(scheduler, fresh_prompt(2), 90);
    take_step(scheduler);
    submit(scheduler, fresh_prompt(30), 1);
    submit(scheduler, fresh_prompt(3), 1);
    submit(scheduler, fresh_prompt(40), 1);
    // 19 tokens: 3 for the short prompt, 8 for each of the others.
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 8}, {2, 3}, {3, 8}});
    // 19 for two prompts: the longer one gets what cannot be divided.
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 9}, {3, 10}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 9}, {3, 10}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 4}, {3, 12}});
}

TEST_CASE("many prompts of one request get one part of a step, the oldest first") {
    SchedulerConfig config{6, 12};
    config.prefix_cache = false;  // otherwise one prompt of a group is computed at a time
    Scheduler scheduler = make_scheduler(config, 100, 4);
    submit(scheduler, fresh_prompt(10), 1, 5);
    submit(scheduler, fresh_prompt(10), 1, 5);
    submit(scheduler, fresh_prompt(15), 1, 7);
    submit(scheduler, fresh_prompt(10), 1, 5);
    CHECK(take_step(scheduler) == Counts{{0, 6}, {2, 6}});
    CHECK(take_step(scheduler) == Counts{{0, 4}, {1, 2}, {2, 6}});
    CHECK(take_step(scheduler) == Counts{{1, 8}, {2, 3}, {3, 1}});
    CHECK(take_step(scheduler) == Counts{{3, 9}});
}

TEST_CASE("a group's number is the caller's: it is never that of a sequence without a group") {
    Scheduler scheduler = make_scheduler({4, 8}, 100, 4);
    submit(scheduler, fresh_prompt(20), 1);     // sequence 0, without a group
    submit(scheduler, fresh_prompt(20), 1, 0);  // group 0
    submit(scheduler, fresh_prompt(20), 1, 1);
    submit(scheduler, fresh_prompt(20), 1);  // sequence 3
    CHECK(take_step(scheduler) == Counts{{0, 2}, {1, 2}, {2, 2}, {3, 2}});
}

TEST_CASE("the answers to one prompt compute its full pages once") {
    for (const bool prefix_cache : {true, false}) {
        SchedulerConfig config{8, 64};
        config.prefix_cache = prefix_cache;
        Scheduler scheduler = make_scheduler(config, 400, 16);
        submit_group(scheduler, 3, 8, fresh_prompt(100), 2);
        std::size_t num_computed = 0;
        for (int i = 0; i < 20; ++i)
            for (const auto& [number, count] : take_step(scheduler)) num_computed += count;
        // 96 tokens are in full pages; each sequence computes the other 4, and one new token.
        CHECK(num_computed == (prefix_cache ? 96 + 8 * (4 + 1) : 8 * 101));
    }
}

TEST_CASE("an answer joins as soon as the full pages of its prompt are computed") {
    Scheduler scheduler = make_scheduler({4, 10}, 100, 8);
    submit_group(scheduler, 3, 3, fresh_prompt(17), 2);
    CHECK(take_step(scheduler) == Counts{{0, 10}});
    CHECK(numbers_of(scheduler.running) == Numbers{0});
    CHECK(take_step(scheduler) == Counts{{0, 7}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 1}, {2, 1}});

    // At least the last token is computed, so of 16 tokens only one page is shared.
    scheduler = make_scheduler({4, 10}, 100, 8);
    submit_group(scheduler, 3, 2, fresh_prompt(16), 2);
    CHECK(take_step(scheduler) == Counts{{0, 10}});
    CHECK(take_step(scheduler) == Counts{{0, 6}, {1, 4}});

    // There is nothing to share in prompts shorter than a page, and a static batch cannot wait.
    scheduler = make_scheduler({4, 10}, 100, 8);
    submit_group(scheduler, 3, 2, fresh_prompt(8), 2);
    CHECK(take_step(scheduler) == Counts{{0, 8}, {1, 2}});
    SchedulerConfig config{4, 40};
    config.continuous = false;
    scheduler = make_scheduler(config, 100, 8);
    submit_group(scheduler, 3, 2, fresh_prompt(17), 2);
    CHECK(take_step(scheduler) == Counts{{0, 17}, {1, 17}});
}

TEST_CASE("an answer does not wait for another one that is computed again") {
    Scheduler scheduler = make_scheduler({3, 8}, 12, 4);
    for (int i = 0; i < 2; ++i) submit(scheduler, fresh_prompt(2), 30, 1);
    for (int i = 0; i < 14; ++i) take_step(scheduler);
    submit(scheduler, fresh_prompt(27), 1);  // takes pages of sequence 1
    submit(scheduler, fresh_prompt(2), 2, 1);
    take_step(scheduler);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 2});
    for (int i = 0; i < 10 && scheduler.running.back().number == 2; ++i) take_step(scheduler);
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 7}});
    CHECK(numbers_of(scheduler.running) == Numbers{0, 1, 3});
}

TEST_CASE("others join while a group computes its prompt, and its own sequences wait") {
    Scheduler scheduler = make_scheduler({4, 8}, 100, 4);
    submit_group(scheduler, 1, 2, fresh_prompt(20), 2);
    CHECK(plan_step(scheduler).why_next_waits == WaitReason::prompt);
    submit_group(scheduler, 2, 2, fresh_prompt(20), 2);
    CHECK(plan_step(scheduler).why_next_waits == WaitReason::prompt);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 2});
}

TEST_CASE("the next sequence is of the group of which the fewest run, the first that arrived") {
    Scheduler scheduler = make_scheduler({4, 40}, 100, 8);
    submit_group(scheduler, 1, 3, fresh_prompt(2), 9);  // 0 to 2
    submit_group(scheduler, 2, 3, fresh_prompt(2), 9);  // 3 to 5
    submit(scheduler, fresh_prompt(2), 2);              // 6
    take_step(scheduler);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 1, 3, 6});
    CHECK(numbers_of(scheduler.waiting) == Numbers{2, 4, 5});
    CHECK(plan_step(scheduler).why_next_waits == WaitReason::max_sequences);
    take_step(scheduler);  // 6 is finished: two of group 1 run, one of group 2
    take_step(scheduler);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 1, 3, 4});
    CHECK(numbers_of(scheduler.waiting) == Numbers{2, 5});
    CHECK(scheduler.num_preemptions == 0);
}

TEST_CASE("a group of which none runs gets the place of the last one of the largest group") {
    Scheduler scheduler = make_scheduler({5, 40}, 100, 8);
    submit_group(scheduler, 1, 3, fresh_prompt(2), 30);  // 0 to 2
    submit_group(scheduler, 2, 2, fresh_prompt(2), 30);  // 3 and 4
    take_step(scheduler);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 1, 2, 3, 4});
    submit_group(scheduler, 3, 2, fresh_prompt(2), 30);  // 5 and 6
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 1}, {3, 1}, {4, 1}, {5, 2}});
    CHECK(numbers_of(scheduler.waiting) == Numbers{2, 6});

    // Groups 1 and 2 have two sequences each: that of the younger group makes room.
    submit(scheduler, fresh_prompt(2), 30);  // 7
    take_step(scheduler);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 1, 3, 5, 7});
    CHECK(numbers_of(scheduler.waiting) == Numbers{2, 4, 6});
    submit(scheduler, fresh_prompt(2), 30);  // 8
    take_step(scheduler);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 3, 5, 7, 8});

    // Each group has one, so the next one waits.
    submit(scheduler, fresh_prompt(2), 30);  // 9
    CHECK(plan_step(scheduler).why_next_waits == WaitReason::max_sequences);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 3, 5, 7, 8});
    for (int i = 0; i < 20; ++i) take_step(scheduler);
    CHECK(scheduler.num_preemptions == 3);
}

TEST_CASE("pages that running sequences lack are not for those that wait") {
    // 40 tokens and one more need 11 pages of 4; the first step computes 10 of them, in 3
    // pages.
    Scheduler scheduler = make_scheduler({4, 10}, 16, 4);
    submit(scheduler, fresh_prompt(40), 4);
    take_step(scheduler);
    CHECK(scheduler.pool.num_unused() == 13);
    submit(scheduler, fresh_prompt(20), 4);  // 6 pages: one too many
    submit(scheduler, fresh_prompt(1), 4);   // would fit, but does not overtake
    CHECK(plan_step(scheduler).why_next_waits == WaitReason::pages);
    CHECK(numbers_of(scheduler.running) == Numbers{0});

    scheduler = make_scheduler({4, 10}, 16, 4);
    submit(scheduler, fresh_prompt(40), 4);
    take_step(scheduler);
    submit(scheduler, fresh_prompt(19), 4);  // 5 pages, with one more token
    submit(scheduler, fresh_prompt(1), 4);
    CHECK(plan_step(scheduler).why_next_waits == WaitReason::pages);
    CHECK(numbers_of(scheduler.running) == Numbers{0, 1});
}

TEST_CASE("200 random workloads: no sequence joins to be preempted in the same step") {
    Generator generator(5);
    const auto random = [&](std::size_t low, std::size_t high) {
        return low + generator.next_32_bits() % (high - low + 1);
    };
    std::size_t num_joined = 0, num_preempted = 0;
    for (int round = 0; round < 200; ++round) {
        INFO(round);
        Scheduler scheduler = make_scheduler({random(2, 6), random(6, 20)}, 20, 4);
        for (std::size_t group = 0; group < 5; ++group)
            submit_group(scheduler, group, random(1, 4), fresh_prompt(random(1, 30)),
                         random(1, 40));
        for (int i = 0; i < 10000 && !scheduler.idle(); ++i) {
            const Numbers before = numbers_of(scheduler.running);
            const std::vector<PlannedTokens> plan = plan_step(scheduler).tokens;
            const Numbers after = numbers_of(scheduler.running);
            Numbers joined, preempted;
            std::ranges::set_difference(after, before, std::back_inserter(joined));
            std::ranges::set_difference(before, after, std::back_inserter(preempted));
            num_joined += joined.size();
            num_preempted += preempted.size();
            REQUIRE(!plan.empty());
            REQUIRE(plan[0].sequence == 0);
            REQUIRE(std::ranges::is_sorted(after));
            REQUIRE(std::ranges::is_sorted(numbers_of(scheduler.waiting)));
            // Each that runs is computed, unless an older one of its group still has a prompt.
            std::set<std::size_t> groups, planned_groups;
            for (const ScheduledSequence& each : scheduler.running) groups.insert(*each.group);
            for (const PlannedTokens& each : plan)
                planned_groups.insert(*scheduler.running[each.sequence].group);
            REQUIRE(groups == planned_groups);
            // The tokens of the step, or all that there are, are planned, unless pages are
            // short: not in a step in which a sequence joins.
            std::size_t num_planned = 0, num_left = 0;
            for (const PlannedTokens& each : plan) num_planned += each.count;
            for (const ScheduledSequence& each : scheduler.running) num_left += each.num_left();
            if (!joined.empty() || preempted.empty())
                REQUIRE(num_planned == std::min(num_left, scheduler.config.max_step_tokens));
            record_step(scheduler, plan, std::vector<NewToken>(plan.size(), {1, false}));
        }
        CHECK(scheduler.pool.num_unused() == 20);
    }
    CHECK(num_joined > 200);
    CHECK(num_preempted > 100);
}
