#include "chapters/13_training/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 11.1 — what points along the row is taken away, not added once more. (With eps, all
// but a little of it.)
Matrix norm_backward(const RMSNorm& norm, const Matrix& input, const Matrix& output_gradient) {
    const auto [count, width] = dims(input);
    const Real C = static_cast<Real>(width);
    Matrix gradient(input.shape());
    for (std::size_t n = 0; n < count; ++n) {
        Real mean_square = 0, along = 0;
        for (std::size_t c = 0; c < width; ++c) mean_square += input(n, c) * input(n, c) / C;
        const Real rms = std::sqrt(mean_square + norm.eps);
        for (std::size_t c = 0; c < width; ++c)
            along += output_gradient(n, c) * norm.weight(c) * input(n, c) / rms / C;
        for (std::size_t c = 0; c < width; ++c)
            gradient(n, c) =
                (output_gradient(n, c) * norm.weight(c) - along * input(n, c) / rms) / rms;
    }
    return gradient;
}

// Exercise 11.2 — a number that G heads read has an effect through each of them, and effects
// add up. (Adam divides by the size of the gradients, so it hides a factor of G.)
Tensor4 repeat_kv_backward(const Tensor4& output_gradient, std::size_t num_key_value_groups) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(output_gradient);
    const std::size_t num_kv_heads = num_heads / num_key_value_groups;
    const Tensor3 groups =  // (B*Hkv, G, T*D)
        reshape(output_gradient,
                {batch_size * num_kv_heads, num_key_value_groups, seq_len * head_dim});
    const Matrix shared = xt::sum<Real>(groups, {1});  // (B*Hkv, T*D)
    return reshape(shared, {batch_size, num_kv_heads, seq_len, head_dim});
}

// Exercise 11.3 — the means began at 0. After n steps only 1 - betaⁿ of them is gradients.
void adam_step(Adam& adam, Vector& numbers, const Vector& gradient, Real learning_rate) {
    const Real count = static_cast<Real>(++adam.steps);
    const Real mean_share = 1 - std::pow(adam.beta1, count);
    const Real square_share = 1 - std::pow(adam.beta2, count);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Real g = gradient(i);
        Real& mean = adam.mean(i);
        Real& mean_square = adam.mean_square(i);
        mean = adam.beta1 * mean + (1 - adam.beta1) * g;
        mean_square = adam.beta2 * mean_square + (1 - adam.beta2) * g * g;
        numbers(i) -= learning_rate * (mean / mean_share) /
                      (std::sqrt(mean_square / square_share) + adam.eps);
    }
}

// Exercise 11.4 — the target of a token is the one behind it. What stands in the input needs no
// learning, only copying.
Batch pieces_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& begins,
                std::size_t seq_len) {
    Batch batch{xt::zeros<Id>({begins.size(), seq_len}),
                xt::zeros<Id>({begins.size(), seq_len})};
    for (std::size_t b = 0; b < begins.size(); ++b) {
        const Id* piece = tokens.data() + begins[b];
        std::copy_n(piece, seq_len, batch.inputs.data() + b * seq_len);
        std::copy_n(piece + 1, seq_len, batch.targets.data() + b * seq_len);
    }
    return batch;
}

// Exercise 11.5 — a norm's tensor is called weight, too. Matrices have two axes, the embedding
// is one of them. What stretches or shifts number by number has one axis.
bool decays([[maybe_unused]] const std::string& name, std::size_t num_axes) {
    return num_axes > 1;
}

// Exercise 11.6 — log p_v = s_v - ln Σ e^s. The sum belongs to all, so each score pays for the
// whole row, in proportion to its probability. Nothing is divided by p, which may be 0.
Matrix log_softmax_backward(const Matrix& log_probabilities, const Matrix& output_gradient) {
    const Vector sums = xt::sum<Real>(output_gradient, {1});  // (N)
    const auto [count, vocab_size] = dims(log_probabilities);
    Matrix gradient = output_gradient;
    for (std::size_t n = 0; n < count; ++n)
        for (std::size_t v = 0; v < vocab_size; ++v)
            gradient(n, v) -= std::exp(log_probabilities(n, v)) * sums(n);
    return gradient;
}

// Exercise 11.7 — -Σ t_v ln p_v is ln Σ e^z - Σ t_v z_v: to share out the targets t changes
// only the second sum, from the logit of the token that came towards the mean of all.
Loss smoothed_cross_entropy(const Matrix& logits, const IdVector& targets, Real epsilon) {
    const auto [count, vocab_size] = dims(logits);
    const Real moved = epsilon / static_cast<Real>(count);
    const Real part = moved / static_cast<Real>(vocab_size);
    Loss loss = cross_entropy(logits, targets);
    for (std::size_t n = 0; n < count; ++n) {
        const auto target = static_cast<std::size_t>(targets(n));
        loss.value += static_cast<double>(moved * logits(n, target));
        loss.gradient(n, target) += moved;
        for (std::size_t v = 0; v < vocab_size; ++v) {
            loss.value -= static_cast<double>(part * logits(n, v));
            loss.gradient(n, v) -= part;
        }
    }
    return loss;
}

// Exercise 11.8 — the mean of means is the mean only if all are of equally many. A token weighs
// 1 / total, whichever batch it is in.
MeanLoss mean_of_all(const std::vector<MeanLoss>& batches) {
    MeanLoss all{0, xt::zeros<Real>(batches.at(0).gradient.shape()), 0};
    for (const MeanLoss& batch : batches) all.num_tokens += batch.num_tokens;
    for (const MeanLoss& batch : batches) {
        const double share = double(batch.num_tokens) / double(all.num_tokens);
        all.loss += share * batch.loss;
        all.gradient = all.gradient + batch.gradient * static_cast<Real>(share);
    }
    return all;
}

}  // namespace exercise
