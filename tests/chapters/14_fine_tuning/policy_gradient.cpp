// The policy gradient, against PyTorch's autograd, and what a baseline changes.
#include "chapters/14_fine_tuning/policy_gradient.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

// The mean of policy_gradient over the policy, with the advantages reward - baseline.
Vector mean_estimate(const Vector& logits, const Vector& arm_rewards, Real baseline) {
    const Vector policy = softmax(logits);
    Vector mean = xt::zeros<Real>({logits.size()});
    for (std::size_t a = 0; a < logits.size(); ++a)
        mean = mean + policy_gradient(logits, a, arm_rewards(a) - baseline) * policy(a);
    return mean;
}

}  // namespace

TEST_CASE("expected_reward and its gradient equal PyTorch's") {
    const Vector logits = fixture<1>("14_fine_tuning/policy_logits"),
                 arm_rewards = fixture<1>("14_fine_tuning/policy_rewards");
    CHECK(expected_reward(logits, arm_rewards) ==
          doctest::Approx(fixture<1>("14_fine_tuning/policy_expected_reward")(0)));
    CHECK_CLOSE(expected_reward_gradient(logits, arm_rewards),
                fixture<1>("14_fine_tuning/policy_gradient"), 1e-6);
}

TEST_CASE("The mean of the sampled policy gradients is the exact one, with any baseline") {
    const Vector logits = fixture<1>("14_fine_tuning/policy_logits"),
                 arm_rewards = fixture<1>("14_fine_tuning/policy_rewards");
    const Vector exact = fixture<1>("14_fine_tuning/policy_gradient");
    for (const Real baseline : {Real(0), Real(0.7), Real(-2)})
        CHECK_CLOSE(mean_estimate(logits, arm_rewards, baseline), exact, 1e-5);
}

TEST_CASE("policy_gradient raises the logit of the action if the advantage is positive") {
    const Vector logits{0, std::log(Real(3))};  // probabilities 0.25 and 0.75
    CHECK_CLOSE(policy_gradient(logits, 0, 2), (Vector{1.5, -1.5}), 1e-6);
    CHECK_CLOSE(policy_gradient(logits, 1, -2), (Vector{0.5, -0.5}), 1e-6);
}

TEST_CASE("The policy gradient names rewards and actions that do not fit") {
    CHECK_THROWS_WITH_AS(expected_reward({1, 2}, {1, 2, 3}),
                         "expected_reward: 3 rewards for 2 actions", ValueError);
    CHECK_THROWS_WITH_AS(policy_gradient({1, 2}, 2, 1),
                         "policy_gradient: there is no action 2 of 2", ValueError);
}
