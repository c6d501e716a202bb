#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 11.1 — find the bug. The loss falls at first. Then it stays where it is or rises
// again, and the rows of the stream grow longer and longer.
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
                (output_gradient(n, c) * norm.weight(c) + along * input(n, c) / rms) / rms;
    }
    return gradient;
}

// Exercise 11.2 — find the bug. With H = Hkv all is right. Where heads are shared, steps along
// the gradient teach keys and values too slowly, and the more heads share one the more so.
Tensor4 repeat_kv_backward(const Tensor4& output_gradient, std::size_t num_key_value_groups) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(output_gradient);
    const std::size_t num_kv_heads = num_heads / num_key_value_groups;
    const Tensor3 groups =  // (B*Hkv, G, T*D)
        reshape(output_gradient,
                {batch_size * num_kv_heads, num_key_value_groups, seq_len * head_dim});
    const Matrix shared = xt::mean<Real>(groups, {1});  // (B*Hkv, T*D)
    return reshape(shared, {batch_size, num_kv_heads, seq_len, head_dim});
}

// Exercise 11.3 — find the bug. After some hundred steps each step is as Adam's. The first ones
// have the wrong length.
void adam_step(Adam& adam, Vector& numbers, const Vector& gradient, Real learning_rate) {
    ++adam.steps;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Real g = gradient(i);
        Real& mean = adam.mean(i);
        Real& mean_square = adam.mean_square(i);
        mean = adam.beta1 * mean + (1 - adam.beta1) * g;
        mean_square = adam.beta2 * mean_square + (1 - adam.beta2) * g * g;
        numbers(i) -= learning_rate * mean / (std::sqrt(mean_square) + adam.eps);
    }
}

// Exercise 11.4 — find the bug. The loss falls to almost 0 within minutes, and the model writes
// one letter for ever.
Batch pieces_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& begins,
                std::size_t seq_len) {
    Batch batch{xt::zeros<Id>({begins.size(), seq_len}),
                xt::zeros<Id>({begins.size(), seq_len})};
    for (std::size_t b = 0; b < begins.size(); ++b) {
        const Id* piece = tokens.data() + begins[b];
        std::copy_n(piece, seq_len, batch.inputs.data() + b * seq_len);
        std::copy_n(piece, seq_len, batch.targets.data() + b * seq_len);
    }
    return batch;
}

// Exercise 11.5 — find the bug. Some weights shrink with every step, although their gradient is
// 0 and their right size is about 1.
bool decays(const std::string& name, [[maybe_unused]] std::size_t num_axes) {
    return name.ends_with(".weight");
}

// Exercise 11.6 — write log_softmax_backward: the gradient of the scores, from the logarithms
// of the probabilities and the gradient with respect to those. Every row for itself. A score
// raises its own logarithm. What does it do to the others of its row?
Matrix log_softmax_backward([[maybe_unused]] const Matrix& log_probabilities,
                            [[maybe_unused]] const Matrix& output_gradient) {
    TODO("log_softmax_backward");
}

// Exercise 11.7 — write smoothed_cross_entropy: as cross_entropy, but not all is expected of
// the token that came. epsilon is dealt out to all V tokens alike, the one that came included,
// which gets the other 1 - epsilon, too.
Loss smoothed_cross_entropy([[maybe_unused]] const Matrix& logits,
                            [[maybe_unused]] const IdVector& targets,
                            [[maybe_unused]] Real epsilon) {
    TODO("smoothed_cross_entropy");
}

// Exercise 11.8 — write mean_of_all: from several batches the mean loss over all tokens, its
// gradient, and how many tokens there were. The batches are not equally long.
MeanLoss mean_of_all([[maybe_unused]] const std::vector<MeanLoss>& batches) {
    TODO("mean_of_all");
}

}  // namespace exercise
