#include "chapters/12_gradients/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 12.1 — find the bug. In training, the loss falls at first. Then it stops falling or
// rises again, and the norm of the rows that enter the RMSNorm grows.
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
                (output_gradient(n, c) * norm.weight(c) + along * input(n, c) / rms) / rms;
    }
    return gradient;
}

// Exercise 12.2 — find the bug. With H = Hkv everything is right. Where heads are shared,
// the gradients of keys and values are too small, the more so the more heads share one.
Tensor4 repeat_kv_backward(const Tensor4& output_gradient, std::size_t num_key_value_groups) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(output_gradient);
    const std::size_t num_kv_heads = num_heads / num_key_value_groups;
    const Tensor3 groups =  // (B*Hkv, G, T*D)
        reshape(output_gradient,
                {batch_size * num_kv_heads, num_key_value_groups, seq_len * head_dim});
    const Matrix shared = xt::mean<Real>(groups, {1});  // (B*Hkv, T*D)
    return reshape(shared, {batch_size, num_kv_heads, seq_len, head_dim});
}

// Exercise 12.3 — find the bug. The embeddings of rare tokens get the right updates, those
// of frequent tokens get updates that are too small.
Matrix embedding_gradient(const IdVector& input_ids, const Matrix& output_gradient,
                          std::size_t vocab_size) {
    Matrix gradient = xt::zeros<Real>({vocab_size, output_gradient.shape(1)});
    for (std::size_t t = 0; t < input_ids.size(); ++t)
        xt::view(gradient, static_cast<std::size_t>(input_ids(t))) =
            xt::view(output_gradient, t);
    return gradient;
}

// Exercise 12.4 — write log_softmax_backward: the gradient of the scores, from the
// log-probabilities and the gradient with respect to them. The rows are independent of each
// other. A score raises its own log-probability. What does it do to the others of its row?
Matrix log_softmax_backward([[maybe_unused]] const Matrix& log_probabilities,
                            [[maybe_unused]] const Matrix& output_gradient) {
    TODO("log_softmax_backward");
}

// Exercise 12.5 — write smoothed_cross_entropy: cross-entropy with label smoothing. The target
// distribution gives epsilon / V to each of the V tokens, and 1 - epsilon on top to the target.
LossAndGradient smoothed_cross_entropy([[maybe_unused]] const Matrix& logits,
                                       [[maybe_unused]] const IdVector& targets,
                                       [[maybe_unused]] Real epsilon) {
    TODO("smoothed_cross_entropy");
}

// Exercise 12.6 — write head_attention_backward, from scratch: the five steps of attention in
// reverse order. You may call softmax_backward.
HeadGradient head_attention_backward([[maybe_unused]] const Matrix& queries,
                                     [[maybe_unused]] const Matrix& keys,
                                     [[maybe_unused]] const Matrix& values,
                                     [[maybe_unused]] const Matrix& mask,
                                     [[maybe_unused]] const Matrix& context_gradient) {
    TODO("head_attention_backward");
}

}  // namespace exercise
