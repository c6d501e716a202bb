// Chapter 14, file 13 of 13: one step of GRPO, from sampled answers to updated parameters.
#pragma once

#include <functional>
#include <string>

#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/14_fine_tuning/grpo.hpp"
#include "chapters/14_fine_tuning/rollouts.hpp"

namespace llm {

// The reward of each sampled answer: 1 if it ended and is the correct one of its group (apart
// from spaces around it), otherwise 0. `decode` turns the tokens of an answer into text. Throws
// ValueError if the number of answers is not a multiple of the number of groups.
Vector exact_match_rewards(
    const Rollouts& rollouts,
    const std::vector<std::string>& correct_answers,                    // one per group
    const std::function<std::string(const std::vector<Id>&)>& decode);  // -> (B)

// The hyperparameters of a step. Several updates with the same answers: from the second on, the
// ratios are no longer 1, and clipping limits them.
struct GrpoArguments {
    std::size_t group_size = 8, num_updates = 2;
    Real learning_rate = Real(0.0005);
    double max_grad_norm = 1;
    bool scale_rewards = true;  // of group_advantages
    GrpoConfig loss;
};
// Of the answers, and of the last update.
struct GrpoMetrics {
    double mean_reward;
    std::size_t groups_with_gradient;  // those whose rewards are not all equal
    double clip_fraction, kl;
};
// Throws ValueError as group_advantages, grpo_loss and fine_tuning_step do.
GrpoMetrics grpo_step(FineTuner& tuner, const Model& reference, const Rollouts& rollouts,
                      const Vector& rewards,  // (B)
                      const GrpoArguments& args, std::vector<Model>& gradients);

}  // namespace llm
