// A whole step of GRPO: rewards of sampled answers, and updates.
#include "chapters/14_fine_tuning/grpo_step.hpp"
#include "common/numbers/statistics.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

const std::vector<std::vector<Id>> two_prompts{{1, 2}, {3}};

Rollouts sampled(const Model& model) {
    Generator generator(1);
    return sample_rollouts(model, two_prompts, 4, 5, 4, generator);
}

// Rewards that differ within both groups.
const Vector rewards{1, 0, 0, 0, 0, 1, 1, 0};

GrpoArguments arguments(std::size_t num_updates) {
    GrpoArguments args;
    args.group_size = 4;
    args.num_updates = num_updates;
    args.learning_rate = Real(0.01);
    return args;
}

}  // namespace

TEST_CASE("exact_match_rewards: 1 for an answer that ended and is that of its group") {
    Rollouts rollouts;
    rollouts.completions = {{{1}, {7, 0}}, {{1}, {8, 0}}, {{2}, {8, 0}}, {{2}, {8, 0}}};
    rollouts.finished = {true, true, true, false};
    const auto decode = [](const std::vector<Id>& ids) {
        std::string text = " ";
        for (const Id id : ids) text += std::to_string(id);
        return text;
    };
    CHECK(exact_match_rewards(rollouts, {"7", "8"}, decode) == Vector{1, 0, 1, 0});
    CHECK_THROWS_AS(exact_match_rewards(rollouts, {"7", "8", "9"}, decode), ValueError);
    CHECK_THROWS_AS(exact_match_rewards(rollouts, {}, decode), ValueError);
}

TEST_CASE("grpo_step: each update uses the log-probabilities of the sampling model") {
    const Model reference = fixture_model();
    const Rollouts rollouts = sampled(reference);
    const Vector advantages = group_advantages(rewards, 4);
    const Matrix reference_log_probs = batch_log_probs(reference, rollouts.batch);
    FineTuner expected = make_fine_tuner(reference), tuner = make_fine_tuner(reference);
    std::vector<Model> gradients(2, zeros_like(reference));
    GrpoLoss last;
    for (int update = 0; update < 3; ++update)
        fine_tuning_step(
            expected, rollouts.batch,
            [&](const Matrix& log_probs) {
                last = grpo_loss(log_probs, rollouts.old_log_probs, reference_log_probs,
                                 rollouts.batch.response_mask, advantages, {});
                return TokenLoss{last.loss, last.gradient};
            },
            Real(0.01), 1, gradients);
    const GrpoMetrics metrics =
        grpo_step(tuner, reference, rollouts, rewards, arguments(3), gradients);
    CHECK_CLOSE(all_values(tuner.model), all_values(expected.model), 1e-6);
    CHECK(metrics.mean_reward == doctest::Approx(0.375));
    CHECK(metrics.groups_with_gradient == 2);
    CHECK(metrics.clip_fraction == doctest::Approx(last.clip_fraction));
    CHECK(metrics.clip_fraction > 0);
    CHECK(metrics.kl == doctest::Approx(last.kl).epsilon(1e-6));
    CHECK(metrics.kl > 0);
}

TEST_CASE("grpo_step: a group whose first reward is the mean of its rewards has a gradient") {
    const Model reference = fixture_model();
    FineTuner tuner = make_fine_tuner(reference);
    std::vector<Model> gradients(2, zeros_like(reference));
    const Vector mixed{0.5f, 0, 1, 0.5f, 1, 1, 1, 1};
    CHECK(grpo_step(tuner, reference, sampled(reference), mixed, arguments(1), gradients)
              .groups_with_gradient == 1);
}

TEST_CASE("grpo_step: equal rewards change nothing in the first update") {
    const Model reference = fixture_model();
    FineTuner tuner = make_fine_tuner(reference);
    std::vector<Model> gradients(2, zeros_like(reference));
    const Vector equal = xt::ones<Real>({std::size_t(8)});
    const GrpoMetrics metrics =
        grpo_step(tuner, reference, sampled(reference), equal, arguments(1), gradients);
    CHECK(metrics.groups_with_gradient == 0);
    CHECK(metrics.mean_reward == 1);
    Model before = reference;
    CHECK(largest_difference(all_values(tuner.model), all_values(before)) < 1e-6);
}
