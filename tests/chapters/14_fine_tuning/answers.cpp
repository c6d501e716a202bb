// Questions with verifiable answers, and groups of sampled answers.
#include <cmath>

#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/14_fine_tuning/rollouts.hpp"
#include "tests/support/training.hpp"

using namespace llm;

TEST_CASE("The held-out split has about a tenth of the questions, and depends on the prompt") {
    std::size_t count = 0;
    for (int i = 0; i < 5000; ++i) {
        const Question question{std::to_string(i % 100) + "+" + std::to_string(i / 100) + "=",
                                ""};
        count += is_held_out(question);
        CHECK(is_held_out(question) == is_held_out({question.prompt, "other"}));
    }
    CHECK(count > 400);
    CHECK(count < 600);
    CHECK(!is_held_out({"1+1=", "2"}, 0));
    CHECK(is_held_out({"1+1=", "2"}, 100));
}

TEST_CASE("The reward is 1 for the exact answer, apart from spaces around it") {
    const Question question{"40+2=", "42"};
    CHECK(exact_match_reward(question.answer, "42") == 1);
    CHECK(exact_match_reward(question.answer, " 42\n") == 1);
    for (const char* wrong : {"", " ", "4", "421", "4 2", "42.", "042"})
        CHECK(exact_match_reward(question.answer, wrong) == 0);
}

TEST_CASE(
    "sample_rollouts: groups in order, with the stop token and the old log-probabilities") {
    const Model model = fixture_model();
    Generator generator(1), same(1);
    const std::vector<std::vector<Id>> prompts{{1, 2}, {3}};
    const Rollouts rollouts = sample_rollouts(model, prompts, 8, 5, 4, generator);
    REQUIRE(rollouts.completions.size() == 16);
    std::size_t num_finished = 0;
    for (std::size_t i = 0; i < 16; ++i) {
        const auto& [prompt_ids, response_ids] = rollouts.completions[i];
        CHECK(prompt_ids == prompts[i / 8]);
        REQUIRE(!response_ids.empty());
        CHECK(response_ids.size() <= 5 + (rollouts.finished[i] ? 1 : 0));
        CHECK((response_ids.back() == 4) == rollouts.finished[i]);
        num_finished += rollouts.finished[i];
        const Completion& completion = rollouts.completions[i];
        const Vector alone =
            sequence_log_probs(batch_log_probs(model, make_response_batch({completion}, 0)),
                               make_response_batch({completion}, 0).response_mask);
        CHECK(sequence_log_probs(rollouts.old_log_probs, rollouts.batch.response_mask)(i) ==
              doctest::Approx(alone(0)).epsilon(1e-4));
    }
    CHECK(num_finished > 0);
    CHECK(num_finished < 16);
    const Rollouts again = sample_rollouts(model, prompts, 8, 5, 4, same);
    for (std::size_t i = 0; i < 16; ++i)
        CHECK(again.completions[i].response_ids == rollouts.completions[i].response_ids);
    CHECK(rollouts.completions[0].response_ids != rollouts.completions[1].response_ids);
}

TEST_CASE("sample_rollouts: an answer that fills the context has not ended") {
    Model model = fixture_model();
    model.config.max_position_embeddings = 4;
    Generator generator(1);
    const Rollouts rollouts = sample_rollouts(model, {{1, 2}}, 16, 50, 4, generator);
    std::size_t num_full = 0;
    for (std::size_t i = 0; i < 16; ++i) {
        const bool is_full = rollouts.completions[i].response_ids.back() != 4;
        CHECK(rollouts.finished[i] == !is_full);
        if (is_full) CHECK(rollouts.completions[i].response_ids.size() == 2);
        num_full += is_full;
    }
    CHECK(num_full > 0);
}
