// Requests that are served at the same time as long or many others.
#include <atomic>
#include <future>

#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::serve;

TEST_CASE("the sequences of a request are a group: one makes room for another request") {
    Metrics metrics;
    EngineLoop loop(random_model(), {{4, 16}, 100, 4}, 100, metrics);
    std::promise<void> begun, submitted;
    const std::shared_future<void> is_submitted = submitted.get_future().share();
    std::atomic<std::size_t> num_steps = 0, num_steps_before = 0;

    // The first step ends when the other request has been submitted.
    std::vector<GenerationRequest> four(4, sequence({7, 8}, 40, 1));
    four[0].config.logits_processor = [&](const Vector& logits, auto) {
        if (num_steps++ == 0) begun.set_value();
        is_submitted.wait();
        return logits;
    };
    OpenRequest first = loop.submit(four);
    begun.get_future().wait();
    GenerationRequest two = sequence({3, 4, 5}, 6);
    two.config.logits_processor = [&](const Vector& logits, std::span<const Id> new_ids) {
        if (new_ids.empty()) num_steps_before = num_steps.load();
        return logits;
    };
    OpenRequest second = loop.submit({two, two});
    submitted.set_value();
    CHECK(receive(second).at(1).ids == alone(sequence({3, 4, 5}, 6)));
    CHECK(receive(first).at(3).ids == alone(four[3]));
    CHECK(num_steps_before <= 12);  // of 40; the second sequence follows the first one
    CHECK(metrics.state().preemptions == 1);
    CHECK(becomes_idle(loop, metrics));
}

TEST_CASE("a short request gets its first token while the prompt of another one is computed") {
    Metrics metrics;
    EngineLoop loop(random_model(), {{4, 16}, 100, 4}, 100, metrics);
    std::promise<void> submitted;
    const std::shared_future<void> is_submitted = submitted.get_future().share();
    std::atomic<bool> long_one_has_token = false, was_first = false;

    // The first step ends when the others have been submitted.
    GenerationRequest blocking = sequence({7}, 1), longer = sequence({}, 3);
    blocking.config.logits_processor = [&](const Vector& logits, auto) {
        is_submitted.wait();
        return logits;
    };
    for (Id id = 3; id < 123; ++id) longer.prompt_ids.push_back(id);
    longer.config.logits_processor = [&](const Vector& logits, auto) {
        long_one_has_token = true;
        return logits;
    };
    GenerationRequest shorter = sequence({3, 4, 5}, 3);
    shorter.config.logits_processor = [&](const Vector& logits, std::span<const Id> new_ids) {
        if (new_ids.size() == 2) was_first = !long_one_has_token;
        return logits;
    };
    OpenRequest one = loop.submit({blocking}), two = loop.submit({longer}),
                three = loop.submit({shorter});
    submitted.set_value();
    CHECK(receive(three).at(0).ids == alone(sequence({3, 4, 5}, 3)));
    CHECK(was_first);
    CHECK(receive(two).at(0).ids.size() == 3);
    CHECK(receive(one).at(0).ids.size() == 1);
    CHECK(becomes_idle(loop, metrics));
}
