#include "chapters/21_serving/scheduler.hpp"

#include "tests/support/check.hpp"
#include "tests/support/serving_helpers.hpp"

using namespace llm;

namespace {

std::vector<Id> prompt(std::size_t length, Id first = 1) {
    std::vector<Id> ids(length);
    for (std::size_t t = 0; t < length; ++t) ids[t] = first + Id(t);
    return ids;
}

// Each page has as many users as there are sequences that have it, and all others are unused.
bool users_are_right(const Scheduler& scheduler) {
    std::vector<std::size_t> users(scheduler.pool.num_pages(), 0);
    for (const ScheduledSequence& sequence : scheduler.running)
        for (const PageId page : sequence.pages) ++users[page];
    for (const ScheduledSequence& sequence : scheduler.waiting)
        if (!sequence.pages.empty() || sequence.num_cached > 0) return false;
    std::size_t num_unused = 0;
    for (PageId page = 0; page < users.size(); ++page) {
        if (users[page] != scheduler.pool.num_users(page)) return false;
        num_unused += users[page] == 0;
    }
    return num_unused == scheduler.pool.num_unused();
}

std::size_t random_count(Generator& generator, std::size_t low, std::size_t high) {
    return low + generator.next_32_bits() % (high - low + 1);
}

// Requests that arrive at random steps, some with a common prefix, some canceled.
struct Workload {
    Generator generator;
    Scheduler scheduler;
    FakeModel model;
    std::map<std::size_t, std::vector<Id>> expected;  // by number
    std::size_t num_canceled = 0;

    explicit Workload(std::uint32_t seed)
        : generator(seed), scheduler(random_scheduler(generator)) {
        model.memory.resize(scheduler.pool.num_pages() * scheduler.pool.page_size());
    }

    static Scheduler random_scheduler(Generator& generator) {
        const std::size_t max_sequences = random_count(generator, 1, 6);
        SchedulerConfig config{max_sequences, random_count(generator, max_sequences, 20)};
        config.prefix_cache = random_count(generator, 0, 3) > 0;
        config.continuous = random_count(generator, 0, 3) > 0;
        return make_scheduler(config, random_count(generator, 12, 30),
                              random_count(generator, 1, 5));
    }

    void submit_one() {
        const std::size_t room = scheduler.pool.num_pages() * scheduler.pool.page_size();
        std::vector<Id> ids =
            prompt(random_count(generator, 1, std::min<std::size_t>(room - 1, 25)),
                   Id(random_count(generator, 1, 2)));
        ids.back() += Id(random_count(generator, 0, 1));
        const std::size_t max_new_tokens =
            random_count(generator, 1, std::min<std::size_t>(room - ids.size(), 30));
        std::optional<std::size_t> group;
        if (random_count(generator, 0, 2) > 0) group = random_count(generator, 0, 3);
        const std::size_t number = submit(scheduler, ids, max_new_tokens, group);
        expected[number] = answer_alone(ids, max_new_tokens);
    }

    void cancel_one() {
        const std::size_t number = random_count(generator, 0, scheduler.num_arrived);
        const bool was_here = expected.erase(number) > 0;
        CHECK(cancel(scheduler, number) == was_here);
        num_canceled += was_here;
    }

    void step() {
        const std::vector<PlannedTokens> plan = plan_step(scheduler).tokens;
        REQUIRE_FALSE(plan.empty());
        std::size_t num_tokens = 0;
        for (const PlannedTokens& planned : plan) num_tokens += planned.count;
        CHECK(num_tokens <= scheduler.config.max_step_tokens);
        CHECK(scheduler.running.size() <= scheduler.config.max_sequences);
        CHECK(plan[0].sequence == 0);  // the oldest one advances
        const std::vector<NewToken> new_tokens = model.compute(scheduler, plan);
        CHECK(model.reads_are_right);
        for (const ScheduledSequence& done : record_step(scheduler, plan, new_tokens)) {
            CHECK(done.ids == expected.at(done.number));
            expected.erase(done.number);
        }
        CHECK(users_are_right(scheduler));
    }
};

}  // namespace

TEST_CASE("1000 random workloads: each request gets the text it gets alone, no page is lost") {
    std::size_t num_preemptions = 0, num_canceled = 0;
    for (std::uint32_t seed = 0; seed < 1000; ++seed) {
        INFO(seed);
        Workload workload(seed);
        for (int n = 0; n < 12; ++n) {
            workload.submit_one();
            const std::size_t num_steps = random_count(workload.generator, 0, 4);
            for (std::size_t i = 0; i < num_steps && !workload.scheduler.idle(); ++i)
                workload.step();
            if (random_count(workload.generator, 0, 7) == 0) workload.cancel_one();
        }
        while (!workload.scheduler.idle()) workload.step();
        CHECK(workload.expected.empty());
        CHECK(workload.scheduler.pool.num_unused() == workload.scheduler.pool.num_pages());
        num_preemptions += workload.scheduler.num_preemptions;
        num_canceled += workload.num_canceled;
    }
    CHECK(num_preemptions > 300);
    CHECK(num_canceled > 300);
}

TEST_CASE("a long prompt is computed in chunks, and the others decode meanwhile") {
    Scheduler scheduler = make_scheduler({4, 10}, 40, 4);
    submit(scheduler, prompt(3), 20);
    CHECK(take_step(scheduler) == Counts{{0, 3}});
    submit(scheduler, prompt(25, 50), 20);
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 9}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 9}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 7}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 1}});
}

TEST_CASE("sequences join and leave at any step") {
    Scheduler scheduler = make_scheduler({2, 8}, 40, 4);
    submit(scheduler, prompt(2), 1);
    submit(scheduler, prompt(3, 20), 3);
    submit(scheduler, prompt(2, 40), 2);
    CHECK(take_step(scheduler) == Counts{{0, 2}, {1, 3}});  // two at a time; 0 is finished
    CHECK(take_step(scheduler) == Counts{{1, 1}, {2, 2}});
    CHECK(take_step(scheduler) == Counts{{1, 1}, {2, 1}});
    CHECK(scheduler.idle());
}

TEST_CASE("static batching: a sequence joins only when none is running") {
    SchedulerConfig config{2, 8};
    config.continuous = false;
    Scheduler scheduler = make_scheduler(config, 40, 4);
    submit(scheduler, prompt(2), 1);
    submit(scheduler, prompt(3, 20), 3);
    submit(scheduler, prompt(2, 40), 2);
    CHECK(take_step(scheduler) == Counts{{0, 2}, {1, 3}});
    CHECK(take_step(scheduler) == Counts{{1, 1}});
    CHECK(take_step(scheduler) == Counts{{1, 1}});
    CHECK(take_step(scheduler) == Counts{{2, 2}});
}

TEST_CASE("a common prefix is computed once, at least one token is computed") {
    Scheduler scheduler = make_scheduler({4, 64}, 40, 4);
    submit(scheduler, prompt(13), 2);
    CHECK(take_step(scheduler) == Counts{{0, 13}});
    submit(scheduler, prompt(13), 2);
    submit(scheduler, prompt(12), 2);
    std::vector<Id> other = prompt(13);
    other[5] = 99;
    submit(scheduler, other, 2);
    // Three pages, two pages (the last token is needed), one page.
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 1}, {2, 4}, {3, 9}});

    SchedulerConfig config{4, 64};
    config.prefix_cache = false;
    scheduler = make_scheduler(config, 40, 4);
    submit(scheduler, prompt(13), 2);
    take_step(scheduler);
    submit(scheduler, prompt(13), 2);
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 13}});
}

TEST_CASE("without pages, the sequence that arrived last is computed again later") {
    SchedulerConfig config{2, 16};
    config.prefix_cache = false;
    Scheduler scheduler = make_scheduler(config, 4, 4);
    submit(scheduler, prompt(7), 9);
    submit(scheduler, prompt(7, 20), 9);
    CHECK(take_step(scheduler) == Counts{{0, 7}, {1, 7}});
    CHECK(take_step(scheduler) == Counts{{0, 1}, {1, 1}});
    CHECK(scheduler.pool.num_unused() == 0);

    // Sequence 0 needs a third page. Sequence 1 gives back two, with 9 tokens by now.
    CHECK(take_step(scheduler) == Counts{{0, 1}});
    CHECK(scheduler.num_preemptions == 1);
    CHECK(scheduler.waiting.front().number == 1);
    for (int i = 0; i < 6; ++i) CHECK(take_step(scheduler) == Counts{{0, 1}});
    CHECK(take_step(scheduler) == Counts{{1, 9}});
}

TEST_CASE("a request waits until the pages of its prompt are unused, and keeps its turn") {
    Scheduler scheduler = make_scheduler({4, 64}, 5, 4);
    submit(scheduler, prompt(10), 4);
    CHECK(take_step(scheduler) == Counts{{0, 10}});
    submit(scheduler, prompt(12, 30), 1);  // four pages with the new token, two are unused
    submit(scheduler, prompt(2, 60), 1);   // would fit, but does not overtake
    CHECK(take_step(scheduler) == Counts{{0, 1}});
    CHECK(take_step(scheduler) == Counts{{0, 1}});
    CHECK(take_step(scheduler) == Counts{{0, 1}});
    CHECK(take_step(scheduler) == Counts{{1, 12}, {2, 2}});
}

TEST_CASE("an EOS token ends a sequence and is not part of it") {
    Scheduler scheduler = make_scheduler({2, 8}, 8, 4);
    submit(scheduler, prompt(2), 5);
    const std::vector<PlannedTokens> plan = plan_step(scheduler).tokens;
    const std::vector<ScheduledSequence> done =
        record_step(scheduler, plan, std::vector<NewToken>{{3, true}});
    REQUIRE(done.size() == 1);
    CHECK(done[0].ids == prompt(2));
    CHECK(scheduler.idle());
    CHECK(scheduler.pool.num_unused() == 8);
}

TEST_CASE("requests that can never be served are rejected") {
    Scheduler scheduler = make_scheduler({2, 8}, 4, 4);
    CHECK_THROWS_WITH_AS(submit(scheduler, {}, 1),
                         "serving: the prompt must have at least one token", ValueError);
    CHECK_THROWS_WITH_AS(submit(scheduler, {1}, 0),
                         "serving: max_new_tokens must be at least 1", ValueError);
    CHECK_THROWS_WITH_AS(
        submit(scheduler, prompt(10), 7),
        "serving: 10 tokens of a prompt and 7 new ones need 5 pages of 4, but there are 4",
        ValueError);
    CHECK_NOTHROW(submit(scheduler, prompt(10), 6));
    CHECK_THROWS_WITH_AS(make_scheduler({9, 8}, 4, 4),
                         "scheduler: 9 sequences do not fit into steps of 8 tokens",
                         ValueError);
    CHECK_THROWS_AS(make_scheduler({0, 8}, 4, 4), ValueError);
    const std::vector<PlannedTokens> plan = plan_step(scheduler).tokens;
    CHECK_NOTHROW(record_step(scheduler, plan, {}));  // only a chunk of 8 of 10 tokens
    const std::vector<PlannedTokens> rest = plan_step(scheduler).tokens;
    CHECK_THROWS_WITH_AS(record_step(scheduler, rest, {}),
                         "scheduler: only 0 new tokens are given", ValueError);
}
