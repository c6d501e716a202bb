#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "chapters/12_gradients/exercise.hpp"

namespace exercise {

// Exercise 12.1 — a = 2, b = 3, y = 6, so dy = 2 (y - 1) = 10, da = dy b = 30, db = dy a = 20.
// w is used twice: dw = da x + db = 60 + 20.
Vector predicted_chain() { return {10, 30, 20, 80}; }

// Exercise 12.2 — the probabilities are 5, 3, 1, 1 tenths, and 1, 1, 2, 1 fifths. Minus 1 at
// the target, divided by two positions.
Matrix predicted_logits_gradient() {
    return {{0.25, Real(-0.35), Real(0.05), Real(0.05)},
            {Real(0.1), Real(0.1), Real(-0.3), Real(0.1)}};
}

// Exercise 12.3 — the sum of three outer products: (1, 0) with (1, -1), (0, 2) with (2, 0), and
// (1, 1) with (0, 3).
Matrix predicted_weight_gradient() { return {{1, 2}, {4, 3}}; }

// Exercise 12.4 — the weighted sum of the upstream gradients is 0.5 * 4 + 0.25 * 8 = 4. It is
// subtracted from 4, 0 and 8, and each difference is multiplied by its weight.
Vector predicted_score_gradient() { return {0, -1, 1}; }

// Exercise 12.5 — the derivative of a block is 1 + 0.5 with the residual connection and 0.5
// without it. Three blocks multiply it three times.
Vector predicted_residual() { return {Real(3.375), Real(0.125)}; }

// Exercise 12.6 — the forward pass multiplies by the weight last, so the backward pass does it
// first, before the mean of the product is computed. While all weights are equal, as at
// initialization, the order makes no difference.
Matrix rms_norm_backward(const RMSNorm& norm, const Matrix& input,
                         const Matrix& output_gradient) {
    const auto [num_rows, width] = dims(input);
    const Real C = static_cast<Real>(width);
    Matrix gradient(input.shape());
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real mean_of_squares = 0, mean_product = 0;
        for (std::size_t c = 0; c < width; ++c)
            mean_of_squares += input(n, c) * input(n, c) / C;
        const Real rms = std::sqrt(mean_of_squares + norm.eps);
        for (std::size_t c = 0; c < width; ++c)
            mean_product += output_gradient(n, c) * norm.weight(c) * input(n, c) / rms / C;
        for (std::size_t c = 0; c < width; ++c)
            gradient(n, c) =
                (output_gradient(n, c) * norm.weight(c) - mean_product * input(n, c) / rms) /
                rms;
    }
    return gradient;
}

// Exercise 12.7 — a key affects the loss through each of the G query heads, so its gradient is
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

// Exercise 12.8 — the gradients of all positions with the same token add up; an assignment
// keeps only the last.
Matrix embedding_gradient(const IdVector& input_ids, const Matrix& output_gradient,
                          std::size_t vocab_size) {
    Matrix gradient = xt::zeros<Real>({vocab_size, output_gradient.shape(1)});
    for (std::size_t t = 0; t < input_ids.size(); ++t)
        xt::view(gradient, static_cast<std::size_t>(input_ids(t))) +=
            xt::view(output_gradient, t);
    return gradient;
}

// Exercise 12.9 — ln p_v = s_v - ln Σ e^s. Each score is part of the sum of its row, so it gets
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

// Exercise 12.10 — the loss is ln Σ e^z - Σ q_v z_v with the target distribution q, which adds
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

// Exercise 12.11 — value s contributes to each context t with the factor weights(t, s).
Matrix gradient_of_values(const Matrix& weights, const Matrix& context_gradient) {
    const auto [query_len, kv_len] = dims(weights);
    const std::size_t head_dim = context_gradient.shape(1);
    Matrix gradient = xt::zeros<Real>({kv_len, head_dim});  // (S, D)
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s)
            for (std::size_t d = 0; d < head_dim; ++d)
                gradient(s, d) += weights(t, s) * context_gradient(t, d);
    return gradient;
}

// Exercise 12.12 — weight (t, s) multiplies each feature of value s in context t: the gradient
// is the dot product of the upstream gradient of context t and value s.
Matrix gradient_of_weights(const Matrix& values, const Matrix& context_gradient) {
    const auto [query_len, head_dim] = dims(context_gradient);
    const std::size_t kv_len = values.shape(0);
    Matrix gradient = xt::zeros<Real>({query_len, kv_len});  // (T, S)
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s)
            for (std::size_t d = 0; d < head_dim; ++d)
                gradient(t, s) += context_gradient(t, d) * values(s, d);
    return gradient;
}

// Exercise 12.13 — w_u (g_u - Σ w g), row by row. A masked score has the weight 0, so its
// gradient is 0.
Matrix gradient_of_scores(const Matrix& weights, const Matrix& weight_gradient) {
    const auto [query_len, kv_len] = dims(weights);
    Matrix gradient = xt::zeros<Real>({query_len, kv_len});  // (T, S)
    for (std::size_t t = 0; t < query_len; ++t) {
        Real mean = 0;
        for (std::size_t s = 0; s < kv_len; ++s) mean += weights(t, s) * weight_gradient(t, s);
        for (std::size_t s = 0; s < kv_len; ++s)
            gradient(t, s) = weights(t, s) * (weight_gradient(t, s) - mean);
    }
    return gradient;
}

// Exercise 12.14 — score (t, s) is a product of query t and key s: the gradient of each is the
// upstream gradient times the other. Query t is in all scores of row t, key s in those of
// column s, and the scores are divided by √D.
QueryKeyGradient gradient_of_queries_and_keys(const Matrix& queries, const Matrix& keys,
                                              const Matrix& score_gradient) {
    const auto [query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(0);
    const Real divisor = std::sqrt(static_cast<Real>(head_dim));
    QueryKeyGradient gradient{xt::zeros<Real>({query_len, head_dim}),
                              xt::zeros<Real>({kv_len, head_dim})};
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s) {
            const Real product_gradient = score_gradient(t, s) / divisor;
            for (std::size_t d = 0; d < head_dim; ++d) {
                gradient.queries(t, d) += product_gradient * keys(s, d);
                gradient.keys(s, d) += product_gradient * queries(t, d);
            }
        }
    return gradient;
}

// Exercise 12.15 — the forward pass up to the weights, which the backward pass needs; the
// largest score is subtracted, so that no exponential overflows.
Matrix causal_weights(const Matrix& queries, const Matrix& keys) {
    const auto [query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(0);
    Matrix weights = xt::zeros<Real>({query_len, kv_len});  // (T, S)
    for (std::size_t t = 0; t < query_len; ++t) {
        const std::size_t num_keys = kv_len - query_len + t + 1;
        Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
        for (std::size_t s = 0; s < num_keys; ++s) {
            for (std::size_t d = 0; d < head_dim; ++d)
                weights(t, s) += queries(t, d) * keys(s, d);
            weights(t, s) /= std::sqrt(static_cast<Real>(head_dim));
            largest = std::max(largest, weights(t, s));
        }
        for (std::size_t s = 0; s < num_keys; ++s) {
            weights(t, s) = std::exp(weights(t, s) - largest);
            sum += weights(t, s);
        }
        for (std::size_t s = 0; s < num_keys; ++s) weights(t, s) /= sum;
    }
    return weights;
}

// Then the four steps, last operation first.
HeadGradient head_attention_backward(const Matrix& queries, const Matrix& keys,
                                     const Matrix& values, const Matrix& context_gradient) {
    const Matrix weights = causal_weights(queries, keys);                          // (T, S)
    const Matrix weight_gradient = gradient_of_weights(values, context_gradient);  // (T, S)
    const Matrix score_gradient = gradient_of_scores(weights, weight_gradient);    // (T, S)
    auto [query_gradient, key_gradient] =
        gradient_of_queries_and_keys(queries, keys, score_gradient);
    return {std::move(query_gradient), std::move(key_gradient),
            gradient_of_values(weights, context_gradient)};
}

}  // namespace exercise
