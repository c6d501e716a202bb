#include "chapters/14_fine_tuning/policy_gradient.hpp"

namespace llm {

double expected_reward(const Vector& logits, const Vector& rewards) {
    require(rewards.size() == logits.size(), "expected_reward: {} rewards for {} actions",
            rewards.size(), logits.size());
    const Vector policy = softmax(logits);
    double sum = 0;
    for (std::size_t a = 0; a < policy.size(); ++a)
        sum += double(policy(a)) * double(rewards(a));
    return sum;
}

Vector expected_reward_gradient(const Vector& logits, const Vector& rewards) {
    const Real expected = static_cast<Real>(expected_reward(logits, rewards));
    return softmax(logits) * Vector(rewards - expected);
}

Vector policy_gradient(const Vector& logits, std::size_t action, Real advantage) {
    require(action < logits.size(), "policy_gradient: there is no action {} of {}", action,
            logits.size());
    Vector gradient = softmax(logits) * -advantage;
    gradient(action) += advantage;
    return gradient;
}

}  // namespace llm
