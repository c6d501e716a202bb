// Chapter 14, file 5 of 13: the policy gradient, with one choice instead of a text.
#pragma once

#include "chapters/11_generation/sampling.hpp"

namespace llm {

// A policy chooses one of K actions with the probabilities π = softmax(logits), and each action
// has a reward. The mean reward over the policy: J = Σ π_a r_a. Throws ValueError if there are
// not as many rewards as logits.
double expected_reward(const Vector& logits,    // (K)
                       const Vector& rewards);  // (K)

// The gradient of J with respect to the logits, exactly: π_a (r_a - J).
Vector expected_reward_gradient(const Vector& logits,    // (K) -> (K)
                                const Vector& rewards);  // (K)

// Its estimate from one sampled action: the advantage times the gradient of ln π_action, which
// is 1{a = action} - π_a. With reward - b as the advantage, its mean over the policy is the
// exact gradient for any baseline b. Throws ValueError if there is no such action. Source:
// "Simple Statistical Gradient-Following Algorithms" (Williams, 1992): REINFORCE.
Vector policy_gradient(const Vector& logits,  // (K) -> (K)
                       std::size_t action, Real advantage);

}  // namespace llm
