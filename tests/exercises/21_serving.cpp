#include "chapters/21_serving/exercise.hpp"

#include "chapters/15_fast/run_state.hpp"
#include "chapters/21_serving/scheduler.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// The steps that a scheduler with two places takes for requests of these numbers of new tokens.
Id num_steps(bool continuous) {
    SchedulerConfig config{2, 8};
    config.continuous = continuous;
    Scheduler scheduler = make_scheduler(config, 32, 4);
    for (const std::size_t max_new_tokens : {1u, 4u, 1u, 4u, 1u, 4u})
        submit(scheduler, {1}, max_new_tokens);
    Id count = 0;
    for (; !scheduler.idle(); ++count) {
        const std::vector<PlannedTokens> step = plan_step(scheduler).tokens;
        record_step(scheduler, step, std::vector<NewToken>(step.size(), {2}));
    }
    return count;
}

// The same jobs for your scheduler and for the chapter's.
struct BothSchedulers {
    State yours;
    Scheduler theirs;

    void submit_both(std::size_t prompt_len, std::size_t max_new_tokens) {
        yours.waiting.push_back({theirs.num_arrived, prompt_len});
        submit(theirs, std::vector<Id>(prompt_len, 1), max_new_tokens);
    }

    // Records a step in both. A job that is finished gives back its pages.
    void record(const std::vector<PlannedTokens>& step) {
        for (const Planned& planned : plan_of(step))
            for (Job& job : yours.running)
                if (job.number == planned.number) job.num_cached += planned.count;
        const auto done = record_step(theirs, step, std::vector<NewToken>(step.size(), {2}));
        for (Job& job : yours.running)
            if (job.num_cached == job.length) ++job.length;
        std::erase_if(yours.running, [&](const Job& job) {
            const bool is_done = std::ranges::any_of(
                done, [&](const ScheduledSequence& each) { return each.number == job.number; });
            if (is_done) yours.num_unused += job.num_pages;
            return is_done;
        });
    }

    std::vector<Planned> plan_of(const std::vector<PlannedTokens>& step) const {
        std::vector<Planned> result;
        for (const auto& [i, count, gives_token] : step)
            result.push_back({theirs.running[i].number, count});
        return result;
    }
};

// "job 0: 3, job 2: 1": how many tokens of which jobs.
std::string text_of(const std::vector<Planned>& planned) {
    std::string text;
    for (const auto& [number, count] : planned)
        text += (text.empty() ? "job " : ", job ") + to_text(number) + ": " + to_text(count);
    return text;
}

BothSchedulers both_schedulers(Generator& generator) {
    const auto random = [&](std::size_t low, std::size_t high) {
        return low + generator.next_32_bits() % (high - low + 1);
    };
    const std::size_t max_running = random(1, 5), num_pages = random(8, 14);
    SchedulerConfig config{max_running, random(max_running, 12)};
    config.prefix_cache = false;
    BothSchedulers both{{4, max_running, config.max_step_tokens, num_pages, {}, {}},
                        make_scheduler(config, num_pages, 4)};
    for (int n = 0; n < 8; ++n) both.submit_both(random(1, 16), random(1, 16));
    return both;
}

}  // namespace

TEST_CASE("21.1 predict: the slots of a sequence") {
    const std::vector<PageId> pages = {5, 0, 9};
    const SlotMapping slots{pages, 16};
    INFO("which entry of the page table, and which slot of that page?");
    CHECK(predicted_slots() == IdVector{Id(slots.slot(0)), Id(slots.slot(15)),
                                        Id(slots.slot(16)), Id(slots.slot(40))});
}

TEST_CASE("21.2 predict: steps of static and of continuous batching") {
    INFO("a static batch takes as long as its longest request");
    CHECK(predicted_steps() == IdVector{num_steps(false), num_steps(true)});
}

TEST_CASE("21.3 find the bug: answers that change their subject") {
    Pages pages{{0, 0, 0}, {0, 1, 2}};
    const PageId first = take_page(pages), second = take_page(pages);
    release_pages(pages, {second, first});
    share_pages(pages, {first});
    INFO("a page that is shared has a user: it may not be taken");
    CHECK(pages.num_users[first] == 1);
    CHECK(take_page(pages) != first);
    CHECK(take_page(pages) != first);
    CHECK(pages.unused.empty());
    share_pages(pages, {first});
    release_pages(pages, {first});
    CHECK(pages.unused.empty());
    release_pages(pages, {first});
    CHECK(pages.unused == std::vector<PageId>{first});
}

TEST_CASE("21.4 write a scheduler") {
    {
        const State state{4, 9,  10,
                          0, {}, {{0, 9, 8, 2}, {1, 20, 3, 1}, {2, 3, 0}, {3, 7, 6, 2}}};
        INFO("first step: two jobs decode, so the others share 8 tokens; job 2 needs only 3");
        REQUIRE(tokens_of_step(state) == std::vector<std::size_t>{1, 5, 3, 1});
    }
    {
        State state{4, 9, 10, 1, {{7, 3}}, {{0, 9, 8, 2}, {1, 9, 8, 2}, {2, 4, 0, 0}}};
        INFO("second step: one page is unused; the next one is taken from the last job");
        REQUIRE(make_room(state, 0, 1));
        REQUIRE(state.num_unused == 0);
        REQUIRE(state.running[0].num_pages == 3);
        REQUIRE_FALSE(make_room(state, 1, 1));
        REQUIRE(state.running.size() == 1);
        REQUIRE(state.num_unused == 2);
        REQUIRE(state.waiting.size() == 3);
        REQUIRE(state.waiting[0].number == 1);
        REQUIRE(state.waiting[0].num_cached == 0);
        REQUIRE(state.waiting[1].number == 2);
    }
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        Generator generator(seed);
        BothSchedulers both = both_schedulers(generator);
        CAPTURE(seed);
        INFO("third step: the plans of the chapter's scheduler, without shared pages");
        for (int n = 0; !both.theirs.idle(); ++n) {
            CAPTURE(n);
            const std::vector<PlannedTokens> step = plan_step(both.theirs).tokens;
            const std::vector<Planned> planned = plan(both.yours);
            REQUIRE(text_of(planned) == text_of(both.plan_of(step)));
            REQUIRE(both.yours.num_unused == both.theirs.pool.num_unused());
            both.record(step);
        }
    }
}
