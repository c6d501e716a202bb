#include <algorithm>
#include <map>

#include "chapters/21_serving/simulation/schedule.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

const RequestInStep& request_in(const SimulatedStep& step, std::size_t request) {
    return *std::find_if(step.requests.begin(), step.requests.end(),
                         [&](const RequestInStep& each) { return each.request == request; });
}

// The tokens that each step computes of a request.
std::vector<std::size_t> counts_of(const std::vector<SimulatedStep>& steps,
                                   std::size_t request) {
    std::vector<std::size_t> counts;
    for (const SimulatedStep& step : steps) counts.push_back(request_in(step, request).count);
    return counts;
}

// What a request does in each step, without repetitions.
std::string states_of(const std::vector<SimulatedStep>& steps, std::size_t request) {
    std::string states, last;
    for (const SimulatedStep& step : steps) {
        const std::string state = to_text(request_in(step, request).state);
        if (state != last) states += (states.empty() ? "" : ", ") + state;
        last = state;
    }
    return states;
}

std::vector<SimulatedStep> simulate_text(const SchedulerConfig& config, std::size_t num_pages,
                                         const std::string& requests) {
    return simulate(make_scheduler(config, num_pages, 4), parse_requests(requests));
}

}  // namespace

TEST_CASE("requests: prompt and new tokens, a shared prefix, arrival and cancellation") {
    const std::vector<SimulatedRequest> requests = parse_requests(" 7+9 8+5+3@2  1+200@20-21 ");
    REQUIRE(requests.size() == 3);
    CHECK(requests[0].prompt_len == 7);
    CHECK(requests[0].max_new_tokens == 9);
    CHECK(requests[0].num_shared == 0);
    CHECK(requests[0].arrival == 1);
    CHECK_FALSE(requests[0].cancellation.has_value());
    CHECK(requests[1].prompt_len == 13);
    CHECK(requests[1].max_new_tokens == 3);
    CHECK(requests[1].num_shared == 8);
    CHECK(requests[1].arrival == 2);
    CHECK(requests[2].max_new_tokens == 200);
    CHECK(requests[2].arrival == 20);
    CHECK(requests[2].cancellation == 21);
}

TEST_CASE("requests: an error names the word that is wrong") {
    for (const std::string word : {"7",       "+9",      "7+",
                                   "7+9+",    "1+2+3+4", "0+9",
                                   "7+0",     "7+201",   "-7+9",
                                   "7+-9",    "7 + 9",   "7+9@",
                                   "7+9@0",   "7+9@1-",  "7+9@1-2-3",
                                   "7+9@201", "7+9x",    "7,9",
                                   "a+b",     "7.0+9",   "99999999999999999999+1"}) {
        INFO(word);
        CHECK_THROWS_AS(parse_requests("3+3 " + word), ValueError);
    }
    CHECK_THROWS_WITH(parse_requests("3+3 7+x"),
                      "--requests: '7+x' is not PROMPT+NEW or SHARED+PROMPT+NEW, perhaps with "
                      "@STEP or @STEP-STEP, in numbers from 1 to 200");
    CHECK_THROWS_WITH(parse_requests("7+9@5-5"),
                      "--requests: '7+9@5-5' arrives before step 5, so it cannot be canceled "
                      "before step 5");
    CHECK_THROWS_WITH(parse_requests("  "), "--requests takes 1 to 20 requests, not 0");
    std::string many;
    for (int i = 0; i < 21; ++i) many += "1+1 ";
    CHECK_THROWS_WITH(parse_requests(many), "--requests takes 1 to 20 requests, not 21");
}

TEST_CASE("simulation: a prompt that exceeds the step is computed in chunks") {
    const auto steps = simulate_text({4, 12}, 32, "3+8 40+3@2");
    CHECK(counts_of(steps, 0) == std::vector<std::size_t>{3, 1, 1, 1, 1, 1, 1, 1});
    CHECK(counts_of(steps, 1) == std::vector<std::size_t>{0, 11, 11, 11, 7, 1, 1, 0});
    CHECK(states_of(steps, 1) == "arrives later, prefill, decode, finished");
    CHECK(states_of(simulate_text({1, 64}, 4, "1+3"), 0) == "prefill, decode");
    CHECK(request_in(steps[2], 1).num_cached == 11);
    CHECK(request_in(steps[6], 1).num_new == 2);
}

TEST_CASE(
    "simulation: static batching waits for the batch, continuous batching for a sequence") {
    SchedulerConfig config{2, 16};
    const std::string requests = "3+2 2+6 4+3 2+2 3+2";
    const auto continuous = simulate_text(config, 32, requests);
    CHECK(continuous.size() == 8);
    CHECK(states_of(continuous, 2) == "waits: max sequences, prefill, decode, finished");
    CHECK(states_of(continuous, 3) ==
          "waits for its turn, waits: max sequences, prefill, decode, finished");
    config.continuous = false;
    const auto batches = simulate_text(config, 32, requests);
    CHECK(batches.size() == 11);
    CHECK(states_of(batches, 2) ==
          "waits: max sequences, waits for the batch, prefill, decode, finished");
}

TEST_CASE("simulation: without a page left, the last request is preempted and computed again") {
    SchedulerConfig config{2, 16};
    config.prefix_cache = false;
    const auto steps = simulate_text(config, 5, "7+9 7+9");
    CHECK(states_of(steps, 0) == "prefill, decode, finished");
    CHECK(states_of(steps, 1) ==
          "prefill, decode, preempted, waits for pages, prefill, decode");
    CHECK(steps[2].events ==
          std::vector<ScheduleEvent>{RequestIsPreempted{.request = 1, .pages = {2, 3}}});
    CHECK(steps[9].events ==
          std::vector<ScheduleEvent>{RequestJoins{.request = 1, .num_cached = 0}});
    CHECK(counts_of(steps, 1)[9] == 9);
}

TEST_CASE("simulation: full pages of a shared prefix have two users") {
    const auto steps = simulate_text({2, 64}, 16, "10+3+4 10+3+4@2");
    CHECK(steps[1].events ==
          std::vector<ScheduleEvent>{RequestArrives{1},
                                     RequestJoins{.request = 1, .num_cached = 8}});
    const RequestInStep& second = request_in(steps[1], 1);
    CHECK(second.num_cached == 8);
    CHECK(second.count == 5);
    CHECK(second.pages == std::vector<PageId>{0, 1, 4, 5});
    for (const PageId page : {0, 1}) {
        CHECK(steps[1].pages[page].num_users == 2);
        CHECK(steps[1].pages[page].requests == std::vector<std::size_t>{0, 1});
        CHECK(steps[1].pages[page].num_tokens == 4);
    }
    CHECK(steps[1].pages[5].num_tokens == 1);

    // With 7 shared tokens, the second page is full of tokens of which one is not shared.
    CHECK(request_in(simulate_text({2, 64}, 16, "7+6+4 7+6+4@2")[1], 1).num_cached == 4);
}

TEST_CASE("simulation: a page without users is remembered until it is evicted") {
    const auto steps = simulate_text({1, 64}, 4, "8+1 12+1@3");
    REQUIRE(steps.size() == 3);
    CHECK(steps[1].pages[0].num_users == 0);
    CHECK(steps[1].pages[0].num_tokens == 4);
    CHECK(steps[1].pages[2].num_tokens == 0);
    CHECK(steps[2].events[1] == ScheduleEvent{PagesAreEvicted{{1}}});
}

TEST_CASE("simulation: a canceled request releases its pages, a finished one is not canceled") {
    const auto steps = simulate_text({1, 16}, 8, "4+9@1-3 4+2@1-9 5+5@2-3");
    CHECK(steps[2].events ==
          std::vector<ScheduleEvent>{RequestIsCanceled{.request = 0, .pages = {0, 1}},
                                     RequestIsCanceled{.request = 2, .pages = {}},
                                     RequestJoins{.request = 1, .num_cached = 0}});
    CHECK(states_of(steps, 0) == "prefill, decode, canceled");
    CHECK(states_of(steps, 1) == "waits: max sequences, prefill, decode");
    CHECK(states_of(steps, 2) == "arrives later, waits for its turn, canceled");
}

TEST_CASE(
    "simulation: prompts share the tokens of a step, and a short one takes what it needs") {
    const auto steps = simulate_text({3, 8}, 32, "20+2 2+2 9+2");
    CHECK(counts_of(steps, 0) == std::vector<std::size_t>{3, 4, 5, 7, 1, 1});
    CHECK(counts_of(steps, 1) == std::vector<std::size_t>{2, 1, 0, 0, 0, 0});
    CHECK(counts_of(steps, 2) == std::vector<std::size_t>{3, 3, 3, 1, 0, 0});
}

TEST_CASE("simulation: requests that need too many pages are rejected") {
    CHECK_THROWS_WITH(simulate_text({2, 16}, 4, "3+3 16+1"),
                      "serving: 16 tokens of a prompt and 1 new ones need 5 pages of 4, but "
                      "there are 4");
}

TEST_CASE(
    "simulation: 200 random schedules: pages, users and tokens agree, each request ends") {
    Generator generator(77);
    const auto random = [&](std::size_t low, std::size_t high) {
        return low + generator.next_32_bits() % (high - low + 1);
    };
    for (int round = 0; round < 200; ++round) {
        INFO(round);
        std::vector<SimulatedRequest> requests(random(1, 8));
        for (SimulatedRequest& request : requests) {
            request.num_shared = random(0, 1) * random(1, 10);
            request.prompt_len = request.num_shared + random(1, 12);
            request.max_new_tokens = random(1, 10);
            request.arrival = random(1, 9);
            if (random(0, 4) == 0) request.cancellation = request.arrival + random(1, 9);
        }
        SchedulerConfig config{random(1, 4), random(4, 20)};
        config.prefix_cache = random(0, 3) > 0;
        config.continuous = random(0, 3) > 0;
        const auto steps = simulate(make_scheduler(config, random(8, 14), 4), requests);
        for (const SimulatedStep& step : steps) {
            CHECK(step.num_tokens() <= config.max_step_tokens);
            REQUIRE(step.requests.size() == requests.size());
            for (const RequestInStep& each : step.requests)
                CHECK((each.count > 0) == !each.pages.empty());
            for (const PageInStep& page : step.pages) {
                CHECK(page.requests.size() == page.num_users);
                CHECK(page.num_tokens <= 4);
                if (page.num_users > 0) CHECK(page.num_tokens > 0);
                if (page.num_users > 1) CHECK(page.num_tokens == 4);
            }
        }
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const RequestInStep& last = request_in(steps.back(), i);
            CHECK(last.state != RequestState::preempted);
            const bool ends_now =
                last.count > 0 && last.num_new + 1 == requests[i].max_new_tokens;
            if (last.state == RequestState::finished)
                CHECK(last.num_new == requests[i].max_new_tokens);
            else
                CHECK((ends_now || requests[i].cancellation.has_value()));
        }
    }
}
