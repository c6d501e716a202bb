#include <cmath>

#include "chapters/12_gradients/exercise.hpp"

namespace exercise {

// Exercise 12.1 — the component along the row is removed, not added: a longer row has the same
// normalized row, so a gradient in that direction would only make the rows grow.
Matrix rms_norm_backward(const RMSNorm& norm, const Matrix& input,
                         const Matrix& output_gradient) {
    const auto [num_rows, width] = dims(input);
    const Real C = static_cast<Real>(width);
    Matrix gradient(input.shape());
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real mean_of_squares = 0, along = 0;
        for (std::size_t c = 0; c < width; ++c)
            mean_of_squares += input(n, c) * input(n, c) / C;
        const Real rms = std::sqrt(mean_of_squares + norm.eps);
        for (std::size_t c = 0; c < width; ++c)
            along += output_gradient(n, c) * norm.weight(c) * input(n, c) / rms / C;
        for (std::size_t c = 0; c < width; ++c)
            gradient(n, c) =
                (output_gradient(n, c) * norm.weight(c) - along * input(n, c) / rms) / rms;
    }
    return gradient;
}

// Exercise 12.2 — a key affects the loss through each of the G query heads, so its gradient is
// the sum of theirs, not the mean.
Tensor4 repeat_kv_backward(const Tensor4& output_gradient, std::size_t num_key_value_groups) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(output_gradient);
    const std::size_t num_kv_heads = num_heads / num_key_value_groups;
    const Tensor3 groups =  // (B*Hkv, G, T*D)
        reshape(output_gradient,
                {batch_size * num_kv_heads, num_key_value_groups, seq_len * head_dim});
    const Matrix shared = xt::sum<Real>(groups, {1});  // (B*Hkv, T*D)
    return reshape(shared, {batch_size, num_kv_heads, seq_len, head_dim});
}

// Exercise 12.3 — the gradients of all positions with the same token add up; an assignment
// keeps only the last.
Matrix embedding_gradient(const IdVector& input_ids, const Matrix& output_gradient,
                          std::size_t vocab_size) {
    Matrix gradient = xt::zeros<Real>({vocab_size, output_gradient.shape(1)});
    for (std::size_t t = 0; t < input_ids.size(); ++t)
        xt::view(gradient, static_cast<std::size_t>(input_ids(t))) +=
            xt::view(output_gradient, t);
    return gradient;
}

// Exercise 12.4 — ln p_v = s_v - ln Σ e^s. Each score is part of the sum of its row, so it gets
// the sum of the upstream gradients, times its probability, subtracted. Nothing is divided by
// p, which may be 0.
Matrix log_softmax_backward(const Matrix& log_probabilities, const Matrix& output_gradient) {
    const Vector sums = xt::sum<Real>(output_gradient, {1});  // (N)
    const auto [num_rows, vocab_size] = dims(log_probabilities);
    Matrix gradient = output_gradient;
    for (std::size_t n = 0; n < num_rows; ++n)
        for (std::size_t v = 0; v < vocab_size; ++v)
            gradient(n, v) -= std::exp(log_probabilities(n, v)) * sums(n);
    return gradient;
}

// Exercise 12.5 — the loss is ln Σ e^z - Σ q_v z_v with the target distribution q, which adds
// up to 1. Smoothing changes only q: epsilon moves from the target to the mean of all.
LossAndGradient smoothed_cross_entropy(const Matrix& logits, const IdVector& targets,
                                       Real epsilon) {
    const auto [num_rows, vocab_size] = dims(logits);
    const Real moved = epsilon / static_cast<Real>(num_rows);
    const Real share = moved / static_cast<Real>(vocab_size);
    LossAndGradient result{cross_entropy(logits, targets),
                           cross_entropy_backward(logits, targets)};
    for (std::size_t n = 0; n < num_rows; ++n) {
        const auto target = static_cast<std::size_t>(targets(n));
        result.loss += static_cast<double>(moved * logits(n, target));
        result.gradient(n, target) += moved;
        for (std::size_t v = 0; v < vocab_size; ++v) {
            result.loss -= static_cast<double>(share * logits(n, v));
            result.gradient(n, v) -= share;
        }
    }
    return result;
}

// Exercise 12.6 — context = weights · values, so both factors get the upstream gradient times
// the other one; then the softmax; then scores = queries · keysᵀ / √D. The mask adds a
// constant.
HeadGradient head_attention_backward(const Matrix& queries, const Matrix& keys,
                                     const Matrix& values, const Matrix& mask,
                                     const Matrix& context_gradient) {
    const Real scale = 1 / std::sqrt(static_cast<Real>(queries.shape(1)));
    const Matrix weights = attention(queries, keys, values, mask).weights;  // (T, S)
    const Matrix weight_gradient = xt::linalg::dot(context_gradient, xt::transpose(values));
    const Matrix score_gradient = softmax_backward(weights, weight_gradient) * scale;
    return {xt::linalg::dot(score_gradient, keys),
            xt::linalg::dot(xt::transpose(score_gradient), queries),
            xt::linalg::dot(xt::transpose(weights), context_gradient)};
}

}  // namespace exercise
