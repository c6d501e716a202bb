#include "chapters/12_gradients/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 12.1 — predict: a = w x, b = w + 2, y = a b and loss = (y - 1)², for w = 1 and x
// = 2. The gradients of the loss with respect to y, a, b and w.
Vector predicted_chain() {
    TODO("predicted_chain");
    // return {?, ?, ?, ?};
}

// Exercise 12.2 — predict: the gradient of the cross-entropy loss with respect to the logits of
// two positions, {ln 5, ln 3, 0, 0} with target 1, and {0, 0, ln 2, 0} with target 2.
Matrix predicted_logits_gradient() {
    TODO("predicted_logits_gradient");
    // return {{?, ?, ?, ?}, {?, ?, ?, ?}};
}

// Exercise 12.3 — predict: the gradient of the weight (2, 2) of a linear layer. The rows of its
// input are (1, -1), (2, 0) and (0, 3), those of the upstream gradient (1, 0), (0, 2), (1, 1).
Matrix predicted_weight_gradient() {
    TODO("predicted_weight_gradient");
    // return {{?, ?}, {?, ?}};
}

// Exercise 12.4 — predict: the softmax of three scores is (0.5, 0.25, 0.25), the upstream
// gradient is (4, 0, 8). The gradient with respect to the scores.
Vector predicted_score_gradient() {
    TODO("predicted_score_gradient");
    // return {?, ?, ?};
}

// Exercise 12.5 — predict: three blocks x + f(x) in a row, f(x) = 0.5 x. The derivative of the
// output of the last block with respect to the input of the first; then the same for three
// blocks f(x), without residual connections.
Vector predicted_residual() {
    TODO("predicted_residual");
    // return {?, ?};
}

// Exercise 12.6 — find the bug. At the start of training the result agrees with finite
// differences. After a few hundred steps it does not.
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
            mean_product += output_gradient(n, c) * input(n, c) / rms / C;
        for (std::size_t c = 0; c < width; ++c)
            gradient(n, c) = norm.weight(c) *
                             (output_gradient(n, c) - mean_product * input(n, c) / rms) / rms;
    }
    return gradient;
}

// Exercise 12.7 — find the bug. With H = Hkv the result is correct. With shared heads, the
// gradients of keys and values are wrong.
Tensor4 repeat_kv_backward(const Tensor4& output_gradient, std::size_t num_key_value_groups) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(output_gradient);
    const std::size_t num_kv_heads = num_heads / num_key_value_groups;
    const Tensor3 groups =  // (B*Hkv, G, T*D)
        reshape(output_gradient,
                {batch_size * num_kv_heads, num_key_value_groups, seq_len * head_dim});
    const Matrix shared = xt::mean<Real>(groups, {1});  // (B*Hkv, T*D)
    return reshape(shared, {batch_size, num_kv_heads, seq_len, head_dim});
}

// Exercise 12.8 — find the bug. The embeddings of rare tokens get the right updates, those
// of frequent tokens get updates that are too small.
Matrix embedding_gradient(const IdVector& input_ids, const Matrix& output_gradient,
                          std::size_t vocab_size) {
    Matrix gradient = xt::zeros<Real>({vocab_size, output_gradient.shape(1)});
    for (std::size_t t = 0; t < input_ids.size(); ++t)
        xt::view(gradient, static_cast<std::size_t>(input_ids(t))) =
            xt::view(output_gradient, t);
    return gradient;
}

// Exercise 12.9 — write log_softmax_backward: the gradient of the scores, from the
// log-probabilities and the gradient with respect to them. The rows are independent of each
// other. Which log-probabilities of its row depend on a score?
Matrix log_softmax_backward([[maybe_unused]] const Matrix& log_probabilities,
                            [[maybe_unused]] const Matrix& output_gradient) {
    TODO("log_softmax_backward");
}

// Exercise 12.10 — write smoothed_cross_entropy: cross-entropy with label smoothing. The target
// distribution is epsilon / V for each of the V tokens, plus 1 - epsilon for the target.
LossAndGradient smoothed_cross_entropy([[maybe_unused]] const Matrix& logits,
                                       [[maybe_unused]] const IdVector& targets,
                                       [[maybe_unused]] Real epsilon) {
    TODO("smoothed_cross_entropy");
}

// Exercise 12.11 — write gradient_of_values. Context t is the sum of weights(t, s) times value
// s over the keys s.
Matrix gradient_of_values([[maybe_unused]] const Matrix& weights,
                          [[maybe_unused]] const Matrix& context_gradient) {
    TODO("gradient_of_values");
}

// Exercise 12.12 — write gradient_of_weights, from the same sum.
Matrix gradient_of_weights([[maybe_unused]] const Matrix& values,
                           [[maybe_unused]] const Matrix& context_gradient) {
    TODO("gradient_of_weights");
}

// Exercise 12.13 — write gradient_of_scores: the backward pass of the softmax of each row.
Matrix gradient_of_scores([[maybe_unused]] const Matrix& weights,
                          [[maybe_unused]] const Matrix& weight_gradient) {
    TODO("gradient_of_scores");
}

// Exercise 12.14 — write gradient_of_queries_and_keys. Score (t, s) is the dot product of query
// t and key s, divided by √D.
QueryKeyGradient gradient_of_queries_and_keys([[maybe_unused]] const Matrix& queries,
                                              [[maybe_unused]] const Matrix& keys,
                                              [[maybe_unused]] const Matrix& score_gradient) {
    TODO("gradient_of_queries_and_keys");
}

// Exercise 12.15 — write head_attention_backward: compute the causal attention weights again,
// then call the four steps. Query t has position S - T + t.
HeadGradient head_attention_backward([[maybe_unused]] const Matrix& queries,
                                     [[maybe_unused]] const Matrix& keys,
                                     [[maybe_unused]] const Matrix& values,
                                     [[maybe_unused]] const Matrix& context_gradient) {
    TODO("head_attention_backward");
}

}  // namespace exercise
