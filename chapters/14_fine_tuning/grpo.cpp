#include "chapters/14_fine_tuning/grpo.hpp"

#include <algorithm>
#include <cmath>

namespace llm {

Vector group_advantages(const Vector& rewards, std::size_t group_size, bool scale_rewards) {
    constexpr double eps = 1e-6;  // equal rewards have a standard deviation of 0
    require(group_size >= 2 && rewards.size() % group_size == 0,
            "group_advantages: {} rewards are not groups of {}", rewards.size(), group_size);
    Vector advantages = rewards;
    const double count = static_cast<double>(group_size);
    for (std::size_t begin = 0; begin < rewards.size(); begin += group_size) {
        double sum = 0, sum_of_squares = 0;
        for (std::size_t i = begin; i < begin + group_size; ++i) sum += double(rewards(i));
        const double mean = sum / count;
        for (std::size_t i = begin; i < begin + group_size; ++i)
            sum_of_squares += (double(rewards(i)) - mean) * (double(rewards(i)) - mean);
        const double std_dev = std::sqrt(sum_of_squares / (count - 1));
        const double scale = scale_rewards ? std_dev + eps : 1;
        for (std::size_t i = begin; i < begin + group_size; ++i)
            advantages(i) = static_cast<Real>((double(rewards(i)) - mean) / scale);
    }
    return advantages;
}

namespace {

void check_grpo_shapes(const Matrix& log_probs, const std::vector<const Matrix*>& others,
                       const Vector& advantages) {
    for (const Matrix* values : others)
        require(values->shape() == log_probs.shape(),
                "grpo_loss: {} does not fit log-probabilities of {}", values->shape(),
                log_probs.shape());
    require(advantages.size() == log_probs.shape(0),
            "grpo_loss: {} advantages do not fit log-probabilities of {}", advantages.size(),
            log_probs.shape());
}

// The weight of each token in the loss.
Matrix token_weights(const Matrix& mask, const GrpoConfig& config) {  // (B, T) -> (B, T)
    const std::size_t batch_size = mask.shape(0), seq_len = mask.shape(1);
    std::vector<std::size_t> counts(batch_size);
    std::size_t total = 0;
    for (std::size_t b = 0; b < batch_size; ++b) {
        for (std::size_t t = 0; t < seq_len; ++t) counts[b] += mask(b, t) != 0;
        require(counts[b] > 0, "grpo_loss: the mask selects no token of sequence {}", b);
        require(config.aggregation != LossAggregation::fixed_length ||
                    counts[b] <= config.max_length,
                "grpo_loss: sequence {} has {} tokens, max_length is {}", b, counts[b],
                config.max_length);
        total += counts[b];
    }
    const auto divisor = [&](std::size_t b) {
        switch (config.aggregation) {
            case LossAggregation::token_mean:
                return total;
            case LossAggregation::fixed_length:
                return batch_size * config.max_length;
            default:
                return batch_size * counts[b];
        }
    };
    Matrix weights = mask;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            weights(b, t) /= static_cast<Real>(divisor(b));
    return weights;
}

// The terms of one token, and the derivative of its loss.
struct TokenTerms {
    double loss, kl, derivative;
    bool clipped;
};
TokenTerms token_terms(double log_prob, double old_log_prob, double reference_log_prob,
                       double advantage, const GrpoConfig& config) {
    const double epsilon = static_cast<double>(config.epsilon);
    const double beta = static_cast<double>(config.beta);
    const double ratio = std::exp(log_prob - old_log_prob);
    const double clipped_ratio = std::clamp(ratio, 1 - epsilon, 1 + epsilon);
    const bool clipped = clipped_ratio * advantage < ratio * advantage;
    const double log_r = reference_log_prob - log_prob;
    const double kl = std::exp(log_r) - log_r - 1;

    // d ratio / d log p = ratio; a clipped ratio is constant. d KL / d log p = 1 - r.
    const double objective = (clipped ? clipped_ratio : ratio) * advantage;
    const double objective_derivative = clipped ? 0 : ratio * advantage;
    return {beta * kl - objective, kl, beta * (1 - std::exp(log_r)) - objective_derivative,
            clipped};
}

}  // namespace

GrpoLoss grpo_loss(const Matrix& log_probs, const Matrix& old_log_probs,
                   const Matrix& reference_log_probs, const Matrix& response_mask,
                   const Vector& advantages, const GrpoConfig& config) {
    check_grpo_shapes(log_probs, {&old_log_probs, &reference_log_probs, &response_mask},
                      advantages);
    const Matrix weights = token_weights(response_mask, config);  // (B, T)
    GrpoLoss result{0, 0, 0, xt::zeros<Real>(log_probs.shape())};
    double count = 0;
    for (std::size_t b = 0; b < log_probs.shape(0); ++b)
        for (std::size_t t = 0; t < log_probs.shape(1); ++t) {
            if (response_mask(b, t) == 0) continue;
            const TokenTerms terms =
                token_terms(double(log_probs(b, t)), double(old_log_probs(b, t)),
                            double(reference_log_probs(b, t)), double(advantages(b)), config);
            result.loss += double(weights(b, t)) * terms.loss;
            result.gradient(b, t) = weights(b, t) * static_cast<Real>(terms.derivative);
            result.kl += terms.kl;
            result.clip_fraction += terms.clipped ? 1 : 0;
            ++count;
        }
    result.kl /= count;
    result.clip_fraction /= count;
    return result;
}

}  // namespace llm
