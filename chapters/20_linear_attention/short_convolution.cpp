#include "chapters/20_linear_attention/short_convolution.hpp"

namespace llm {
namespace {

// (B, J - 1 + T, Cc)
Tensor3 join_tokens(const Tensor3& before, const Tensor3& input) {
    require(before.shape(0) == input.shape(0) && before.shape(2) == input.shape(2),
            "convolution: earlier inputs of {} do not match inputs of {}", before.shape(),
            input.shape());
    return xt::concatenate(xt::xtuple(before, input), 1);
}

}  // namespace

Tensor3 causal_conv1d(const Tensor3& input, const Matrix& weight, const Tensor3& before) {
    const auto [batch_size, seq_len, width] = dims(input);
    const std::size_t kernel_size = weight.shape(1);
    require(weight.shape(0) == width && before.shape(1) + 1 == kernel_size,
            "convolution: a weight of {} does not match inputs of {} after {}", weight.shape(),
            input.shape(), before.shape());
    const Tensor3 all = join_tokens(before, input);
    Tensor3 output = xt::zeros<Real>({batch_size, seq_len, width});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t j = 0; j < kernel_size; ++j)
                for (std::size_t w = 0; w < width; ++w)
                    output(b, t, w) += weight(w, j) * all(b, t + j, w);
    return output;
}

Tensor3 last_inputs(const Tensor3& before, const Tensor3& input) {
    const Tensor3 all = join_tokens(before, input);
    return xt::view(all, xt::all(), xt::range(input.shape(1), all.shape(1)), xt::all());
}

Tensor3 no_inputs(std::size_t batch_size, const Matrix& weight) {
    return xt::zeros<Real>({batch_size, weight.shape(1) - 1, weight.shape(0)});
}

Tensor3 causal_conv1d_backward(const Tensor3& input, const Matrix& weight,
                               const Tensor3& output_gradient, Matrix& weight_gradient) {
    const auto [batch_size, seq_len, width] = dims(input);
    const std::size_t kernel_size = weight.shape(1);
    Tensor3 input_gradient = xt::zeros<Real>({batch_size, seq_len, width});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t j = 0; j < kernel_size; ++j) {
                // Output t has read input t - J + 1 + j, if there is one.
                if (t + j + 1 < kernel_size) continue;
                const std::size_t source = t + j + 1 - kernel_size;
                for (std::size_t w = 0; w < width; ++w) {
                    input_gradient(b, source, w) += weight(w, j) * output_gradient(b, t, w);
                    weight_gradient(w, j) += input(b, source, w) * output_gradient(b, t, w);
                }
            }
    return input_gradient;
}

}  // namespace llm
