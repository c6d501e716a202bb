// The DPO loss and its gradient, against PyTorch's autograd.
#include <cmath>

#include "chapters/14_fine_tuning/dpo.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("dpo_token_loss and its gradient equal PyTorch's") {
    const DpoTokenLoss dpo = dpo_token_loss(
        fixture<2>("14_fine_tuning/log_probs"), fixture<2>("14_fine_tuning/mask"),
        fixture<1>("14_fine_tuning/dpo_reference"), Real(0.3));
    CHECK(dpo.loss == doctest::Approx(fixture<1>("14_fine_tuning/dpo_loss")(0)));
    CHECK_CLOSE(dpo.gradient, fixture<2>("14_fine_tuning/dpo_gradient"), 1e-6);
}

TEST_CASE("rpo_alpha adds the SFT loss of the chosen responses, as in PyTorch") {
    const DpoTokenLoss dpo = dpo_token_loss(
        fixture<2>("14_fine_tuning/log_probs"), fixture<2>("14_fine_tuning/mask"),
        fixture<1>("14_fine_tuning/dpo_reference"), Real(0.3), Real(0.6));
    CHECK(dpo.loss == doctest::Approx(fixture<1>("14_fine_tuning/dpo_with_sft_loss")(0)));
    CHECK_CLOSE(dpo.gradient, fixture<2>("14_fine_tuning/dpo_with_sft_gradient"), 1e-6);
    CHECK(dpo.dpo.loss == doctest::Approx(fixture<1>("14_fine_tuning/dpo_loss")(0)));
}

TEST_CASE("dpo_loss by hand: rewards, accuracy, and ln 2 for a policy equal to the reference") {
    const DpoLoss start = dpo_loss({-3, -5}, {-4, -1}, {-3, -5}, {-4, -1}, Real(0.1));
    CHECK(start.loss == doctest::Approx(std::log(2.0)));
    CHECK(start.accuracy == 0);
    CHECK_CLOSE(start.chosen_gradient, (Vector{-0.025f, -0.025f}), 1e-7);
    CHECK_CLOSE(start.rejected_gradient, (Vector{0.025f, 0.025f}), 1e-7);

    const DpoLoss later = dpo_loss({-2, -5}, {-6, 0}, {-3, -5}, {-4, -1}, Real(0.5));
    CHECK_CLOSE(later.chosen_rewards, (Vector{0.5f, 0}), 1e-7);
    CHECK_CLOSE(later.rejected_rewards, (Vector{-1, 0.5f}), 1e-7);
    CHECK(later.accuracy == 0.5);

    // Rounding between two forward passes does not count as a larger reward.
    const Vector policy{-40, -50}, other_pass{-40.00002f, -50.00002f};
    CHECK(dpo_loss(policy, policy, other_pass, policy, Real(0.1)).accuracy == 0);
    CHECK(dpo_loss(policy, policy, {-40.01f, -50.01f}, policy, Real(0.1)).accuracy == 1);
}

TEST_CASE("log_sigmoid does not overflow") {
    CHECK(log_sigmoid(-1000) == -1000);
    CHECK(log_sigmoid(1000) == 0);
    CHECK(log_sigmoid(0) == doctest::Approx(-std::log(2.0)));
}

TEST_CASE("DPO names sizes that are no pairs") {
    const Vector none(std::array<std::size_t, 1>{0});
    CHECK_THROWS_WITH_AS(dpo_loss(none, none, none, none, 1),
                         "dpo_loss: 0 chosen, 0 rejected, 0 and 0 of the reference",
                         ValueError);
    CHECK_THROWS_WITH_AS(dpo_loss({-1}, {-1, -2}, {-1}, {-1}, 1),
                         "dpo_loss: 1 chosen, 2 rejected, 1 and 1 of the reference",
                         ValueError);
    CHECK_THROWS_WITH_AS(dpo_token_loss({{-1}}, {{1}}, {-1}, 1),
                         "dpo_token_loss: 1 sequences and 1 of the reference are no pairs",
                         ValueError);
}
