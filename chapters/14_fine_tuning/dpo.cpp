#include "chapters/14_fine_tuning/dpo.hpp"

#include <algorithm>
#include <cmath>

namespace llm {

double log_sigmoid(double x) {
    // For negative x, e^-x overflows: use x - ln(1 + e^x) instead.
    return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

DpoLoss dpo_loss(const Vector& policy_chosen, const Vector& policy_rejected,
                 const Vector& reference_chosen, const Vector& reference_rejected, Real beta) {
    const std::size_t num_pairs = policy_chosen.size();
    require(num_pairs > 0 && policy_rejected.size() == num_pairs &&
                reference_chosen.size() == num_pairs && reference_rejected.size() == num_pairs,
            "dpo_loss: {} chosen, {} rejected, {} and {} of the reference",
            policy_chosen.size(), policy_rejected.size(), reference_chosen.size(),
            reference_rejected.size());
    DpoLoss result{0, policy_chosen, policy_chosen, {}, {}, 0};
    result.chosen_rewards = (policy_chosen - reference_chosen) * beta;
    result.rejected_rewards = (policy_rejected - reference_rejected) * beta;
    for (std::size_t n = 0; n < num_pairs; ++n) {
        const double margin = static_cast<double>(result.chosen_rewards(n)) -
                              static_cast<double>(result.rejected_rewards(n));
        result.loss -= log_sigmoid(margin) / static_cast<double>(num_pairs);
        // Before the first step, policy and reference differ only by rounding.
        constexpr double rounding = 1e-5;
        result.accuracy += (margin > rounding ? 1.0 : 0.0) / static_cast<double>(num_pairs);

        // The derivative of -log σ(m) is -σ(-m): pairs that are already in order count less.
        const Real weight = static_cast<Real>(std::exp(log_sigmoid(-margin)));
        result.chosen_gradient(n) = -beta * weight / static_cast<Real>(num_pairs);
        result.rejected_gradient(n) = -result.chosen_gradient(n);
    }
    return result;
}

DpoTokenLoss dpo_token_loss(const Matrix& log_probs, const Matrix& response_mask,
                            const Vector& reference_log_probs, Real beta, Real rpo_alpha) {
    const Vector policy = sequence_log_probs(log_probs, response_mask);  // (2 N)
    const std::size_t num_sequences = policy.size(), num_pairs = num_sequences / 2;
    require(num_sequences % 2 == 0 && reference_log_probs.size() == num_sequences,
            "dpo_token_loss: {} sequences and {} of the reference are no pairs", num_sequences,
            reference_log_probs.size());
    const auto half = [num_pairs](const Vector& values, std::size_t begin) {
        Vector part(std::array{num_pairs});
        std::copy_n(values.data() + begin, num_pairs, part.data());
        return part;
    };
    const DpoLoss dpo =
        dpo_loss(half(policy, 0), half(policy, num_pairs), half(reference_log_probs, 0),
                 half(reference_log_probs, num_pairs), beta);
    Vector gradient(std::array{num_sequences});
    std::copy_n(dpo.chosen_gradient.data(), num_pairs, gradient.data());
    std::copy_n(dpo.rejected_gradient.data(), num_pairs, gradient.data() + num_pairs);
    DpoTokenLoss result{dpo.loss, sequence_log_probs_backward(response_mask, gradient), dpo};
    if (rpo_alpha == 0) return result;

    // Add the SFT loss of the chosen responses, the first half.
    Matrix chosen_mask = response_mask;
    std::fill(chosen_mask.begin() + std::ptrdiff_t(chosen_mask.size() / 2), chosen_mask.end(),
              Real(0));
    const TokenLoss sft = sft_loss(log_probs, chosen_mask);
    result.loss += static_cast<double>(rpo_alpha) * sft.loss;
    result.gradient += sft.gradient * rpo_alpha;
    return result;
}

}  // namespace llm
