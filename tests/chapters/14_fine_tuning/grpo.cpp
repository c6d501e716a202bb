// GRPO's advantages, loss and gradient, against PyTorch's autograd.
#include "chapters/14_fine_tuning/grpo.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

GrpoLoss fixture_loss(LossAggregation aggregation) {
    return grpo_loss(
        fixture<2>("14_fine_tuning/log_probs"), fixture<2>("14_fine_tuning/grpo_old"),
        fixture<2>("14_fine_tuning/grpo_reference"), fixture<2>("14_fine_tuning/mask"),
        fixture<1>("14_fine_tuning/advantages"), {Real(0.2), Real(0.1), aggregation});
}

// A first update: the policy is still the one that sampled, and also the reference. The first
// response has one token, the second three; the rewards are 1 and 0.
GrpoLoss first_update(LossAggregation aggregation) {
    const Matrix log_probs{{-1, -2, -3}, {-3, -2, -1}};
    const Matrix mask{{1, 0, 0}, {1, 1, 1}};
    return grpo_loss(log_probs, log_probs, log_probs, mask, group_advantages({1, 0}, 2),
                     {Real(0.2), Real(0.1), aggregation});
}

}  // namespace

TEST_CASE("group_advantages equal PyTorch's, and are 0 in a group of equal rewards") {
    CHECK_CLOSE(group_advantages(fixture<1>("14_fine_tuning/rewards"), 2),
                fixture<1>("14_fine_tuning/advantages"), 1e-6);
    CHECK_CLOSE(group_advantages({1, 1, 1, 0, 3, 0}, 3),
                (Vector{0, 0, 0, -0.57735f, 1.154701f, -0.57735f}), 1e-5);
}

TEST_CASE("grpo_loss and its gradient equal PyTorch's, with both aggregations") {
    const GrpoLoss by_sequence = fixture_loss(LossAggregation::sequence_mean);
    CHECK(by_sequence.loss ==
          doctest::Approx(fixture<1>("14_fine_tuning/grpo_sequence_mean_loss")(0)));
    CHECK_CLOSE(by_sequence.gradient, fixture<2>("14_fine_tuning/grpo_sequence_mean_gradient"),
                1e-6);
    const GrpoLoss by_token = fixture_loss(LossAggregation::token_mean);
    CHECK(by_token.loss ==
          doctest::Approx(fixture<1>("14_fine_tuning/grpo_token_mean_loss")(0)));
    CHECK_CLOSE(by_token.gradient, fixture<2>("14_fine_tuning/grpo_token_mean_gradient"), 1e-6);
    CHECK(by_token.kl == doctest::Approx(fixture<1>("14_fine_tuning/grpo_kl")(0)));
    CHECK(by_token.clip_fraction > 0);
    CHECK(by_token.clip_fraction < 1);
}

TEST_CASE("Dr. GRPO: unscaled advantages and one length for all sequences equal PyTorch's") {
    const Vector advantages = group_advantages(fixture<1>("14_fine_tuning/rewards"), 2, false);
    CHECK_CLOSE(advantages, fixture<1>("14_fine_tuning/dr_grpo_advantages"), 1e-6);
    const auto loss_with = [&](std::size_t max_length) {
        return grpo_loss(
            fixture<2>("14_fine_tuning/log_probs"), fixture<2>("14_fine_tuning/grpo_old"),
            fixture<2>("14_fine_tuning/grpo_reference"), fixture<2>("14_fine_tuning/mask"),
            advantages, {Real(0.2), Real(0.1), LossAggregation::fixed_length, max_length});
    };
    CHECK(loss_with(6).loss == doctest::Approx(fixture<1>("14_fine_tuning/dr_grpo_loss")(0)));
    CHECK_CLOSE(loss_with(6).gradient, fixture<2>("14_fine_tuning/dr_grpo_gradient"), 1e-6);
    CHECK_NOTHROW(loss_with(3));
    CHECK_THROWS_WITH_AS(loss_with(2), "grpo_loss: sequence 1 has 3 tokens, max_length is 2",
                         ValueError);
}

TEST_CASE("The first GRPO loss with sequence means is 0, its gradient is not") {
    const GrpoLoss first = first_update(LossAggregation::sequence_mean);
    CHECK(first.loss == doctest::Approx(0).epsilon(1e-6));
    CHECK(first.gradient(0, 0) == doctest::Approx(-0.353553));     // -A / 2
    CHECK(first.gradient(1, 0) == doctest::Approx(0.353553 / 3));  // and 3 tokens
}

TEST_CASE("The first GRPO loss with token means is not 0 when the lengths differ") {
    const GrpoLoss first = first_update(LossAggregation::token_mean);
    CHECK(first.loss == doctest::Approx(0.353553));  // (-A + 3 A) / 4
    CHECK(first.gradient(0, 0) == doctest::Approx(-0.707107 / 4));
    CHECK(first.gradient(1, 2) == doctest::Approx(0.707107 / 4));
}

TEST_CASE("Clipping stops the gradient only where the ratio went in the direction of A") {
    const Matrix log_probs{{0.5f, -0.5f}, {0.5f, -0.5f}};  // ratios 1.65 and 0.61
    const Matrix zeros = xt::zeros<Real>({2, 2}), ones = xt::ones<Real>({2, 2});
    const GrpoLoss loss = grpo_loss(log_probs, zeros, log_probs, ones, {1, -1}, {});
    CHECK(loss.gradient(0, 0) == 0);  // A > 0 and the probability has grown enough
    CHECK(loss.gradient(0, 1) < 0);
    CHECK(loss.gradient(1, 0) > 0);
    CHECK(loss.gradient(1, 1) == 0);  // A < 0 and the probability has fallen enough
    CHECK(loss.clip_fraction == 0.5);
}

TEST_CASE("A group of equal rewards gives no gradient without a KL penalty") {
    const Matrix log_probs{{-1, -2}, {-3, -1}}, ones = xt::ones<Real>({2, 2});
    const GrpoLoss loss = grpo_loss(log_probs, log_probs, log_probs, ones,
                                    group_advantages({1, 1}, 2), {Real(0.2), 0});
    CHECK_CLOSE(loss.gradient, (Matrix{{0, 0}, {0, 0}}), 0);
}

TEST_CASE("GRPO names groups, shapes and masks that do not fit") {
    CHECK_THROWS_WITH_AS(group_advantages({1, 2, 3}, 2),
                         "group_advantages: 3 rewards are not groups of 2", ValueError);
    CHECK_THROWS_WITH_AS(group_advantages({1, 2, 3}, 1),
                         "group_advantages: 3 rewards are not groups of 1", ValueError);
    const Matrix row{{-1, -2}};
    CHECK_THROWS_WITH_AS(grpo_loss(row, row, row, {{1, 1, 1}}, {1}, {}),
                         "grpo_loss: (1, 3) does not fit log-probabilities of (1, 2)",
                         ValueError);
    CHECK_THROWS_WITH_AS(grpo_loss(row, row, row, {{0, 0}}, {1}, {}),
                         "grpo_loss: the mask selects no token of sequence 0", ValueError);
    CHECK_THROWS_WITH_AS(grpo_loss(row, {{-1}}, row, row, {1}, {}),
                         "grpo_loss: (1, 1) does not fit log-probabilities of (1, 2)",
                         ValueError);
}
