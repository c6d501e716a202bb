// Chapter 14, file 6 of 13: group relative policy optimization (GRPO).
#pragma once

#include "chapters/14_fine_tuning/log_probs.hpp"

namespace llm {

// Each group of group_size consecutive rewards belongs to one prompt. The advantage of a
// response is (reward - mean) / (std + 1e-6) of its group, with the unbiased standard deviation
// (torch.std); equal rewards give 0. Without scale_rewards it is reward - mean. Throws
// ValueError unless group_size is at least 2 and divides B. Source: "DeepSeekMath" (Shao et
// al., 2024), section 4.1; without scale_rewards, "Understanding R1-Zero-Like Training" (Liu et
// al., 2025): Dr. GRPO.
Vector group_advantages(const Vector& rewards,  // (B) -> (B)
                        std::size_t group_size, bool scale_rewards = true);

// How the losses of tokens become one number. sequence_mean: the mean of the means of the
// sequences (GRPO). token_mean: the mean over all tokens of all responses, so that long
// responses weigh more ("DAPO", Yu et al., 2025). fixed_length: the sum over all tokens divided
// by B times max_length, so that each token weighs the same in every batch (Dr. GRPO).
enum class LossAggregation { sequence_mean, token_mean, fixed_length };

struct GrpoConfig {
    Real epsilon = Real(0.2);  // clips the ratio to [1 - epsilon, 1 + epsilon]
    Real beta = Real(0.04);    // the weight of the KL penalty
    LossAggregation aggregation = LossAggregation::sequence_mean;
    std::size_t max_length = 0;  // of a response, for fixed_length
};

// The loss, and means over all tokens of the responses.
struct GrpoLoss {
    double loss, kl, clip_fraction;
    Matrix gradient;  // (B, T): with respect to log_probs
};

// For each token: -min(ratio A, clip(ratio) A) + beta KL, where ratio = p / p_old. The
// KL divergence from the reference model is estimated as r - ln r - 1 with r = p_ref / p (the
// k3 estimator, Schulman, 2020). Throws ValueError if the shapes do not match, if a mask
// selects no token of a sequence, or with fixed_length more than max_length. Source: Shao et
// al., 2024, equations 3 and 4.
GrpoLoss grpo_loss(const Matrix& log_probs,            // (B, T)
                   const Matrix& old_log_probs,        // (B, T): when sampled
                   const Matrix& reference_log_probs,  // (B, T)
                   const Matrix& response_mask,        // (B, T)
                   const Vector& advantages,           // (B)
                   const GrpoConfig& config);

}  // namespace llm
