// Chapter 14, file 5 of 10: group relative policy optimization (GRPO).
#pragma once

#include "chapters/14_fine_tuning/log_probs.hpp"

namespace llm {

// Each group of group_size consecutive rewards belongs to one prompt. The advantage of a
// response is (reward - mean) / (std + eps) of its group, with the unbiased standard deviation
// (torch.std); equal rewards give 0. Throws ValueError unless group_size is at least 2 and
// divides B. Source: "DeepSeekMath" (Shao et al., 2024), section 4.1; CS336, assignment 5.
Vector group_advantages(const Vector& rewards,  // (B) -> (B)
                        std::size_t group_size, Real eps = Real(1e-6));

// How the losses of tokens become one number. sequence_mean: the mean of the means of the
// sequences (GRPO). token_mean: the mean over all tokens of all responses, so that long
// responses weigh more ("DAPO", Yu et al., 2025).
enum class LossAggregation { sequence_mean, token_mean };

struct GrpoConfig {
    Real epsilon = Real(0.2);  // clips the ratio to [1 - epsilon, 1 + epsilon]
    Real beta = Real(0.04);    // the weight of the KL penalty
    LossAggregation aggregation = LossAggregation::sequence_mean;
};

// The loss, and means over all tokens of the responses.
struct GrpoLoss {
    double loss, kl, clip_fraction;
    Matrix gradient;  // (B, T): with respect to log_probs
};

// For each token: -min(ratio A, clip(ratio) A) + beta KL, where ratio = p / p_old. The
// KL divergence from the reference model is estimated as r - ln r - 1 with r = p_ref / p (the
// k3 estimator, Schulman, 2020). Throws ValueError if the shapes do not match, or if a mask
// selects no token of a sequence. Source: Shao et al., 2024, equations 3 and 4.
GrpoLoss grpo_loss(const Matrix& log_probs,            // (B, T)
                   const Matrix& old_log_probs,        // (B, T): when sampled
                   const Matrix& reference_log_probs,  // (B, T)
                   const Matrix& response_mask,        // (B, T)
                   const Vector& advantages,           // (B)
                   const GrpoConfig& config);

}  // namespace llm
