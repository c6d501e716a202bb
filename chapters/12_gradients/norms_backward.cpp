#include "chapters/12_gradients/norms_backward.hpp"

#include <cmath>

#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "common/tensors/elementwise.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// y = w * normalized + b, elementwise in each row. Returns the gradient with respect to
// normalized.
Matrix scale_and_shift_backward(const Matrix& normalized, const Vector& weight,
                                const Matrix& output_gradient, Vector& weight_gradient,
                                std::optional<Vector>& bias_gradient) {
    const auto [num_rows, width] = dims(normalized);
    Matrix normalized_gradient = output_gradient;  // (N, C)
    for (std::size_t n = 0; n < num_rows; ++n)
        for (std::size_t c = 0; c < width; ++c) {
            weight_gradient(c) += output_gradient(n, c) * normalized(n, c);
            normalized_gradient(n, c) *= weight(c);
        }
    if (bias_gradient) accumulate_rows(*bias_gradient, output_gradient);
    return normalized_gradient;
}

template <class Norm>
Tensor3 norm_backward_of_tokens(const Norm& norm, const Tensor3& input,
                                const Tensor3& output_gradient, Norm& gradient) {
    const auto [batch_size, seq_len, width] = dims(input);
    const Matrix input_rows = reshape(input, {batch_size * seq_len, width});
    const Matrix gradient_rows = reshape(output_gradient, {batch_size * seq_len, width});
    return reshape(norm_backward(norm, input_rows, gradient_rows, gradient),
                   {batch_size, seq_len, width});
}

}  // namespace

Matrix rms_normalize_backward(const Matrix& input, const Matrix& output_gradient, Real eps) {
    const auto [num_rows, width] = dims(input);
    const Real C = static_cast<Real>(width);
    Matrix input_gradient(input.shape());  // (N, C)
    for (std::size_t n = 0; n < num_rows; ++n) {
        const std::span<const Real> row = view_of(input)[n];
        const Real sum_of_squares = dot_product(row, row);
        const Real inverse_rms = 1 / std::sqrt(sum_of_squares / C + eps);

        // The mean of the product of the upstream gradient and the normalized row, x̂.
        const Real mean_product =
            dot_product(view_of(output_gradient)[n], row) * inverse_rms / C;

        // dx = (dx̂ - x̂ mean(dx̂ x̂)) / rms: scaling a row does not change x̂.
        for (std::size_t c = 0; c < width; ++c)
            input_gradient(n, c) =
                (output_gradient(n, c) - input(n, c) * inverse_rms * mean_product) *
                inverse_rms;
    }
    return input_gradient;
}

Matrix layer_normalize_backward(const Matrix& input, const Matrix& output_gradient, Real eps) {
    const auto [num_rows, width] = dims(input);
    const Real C = static_cast<Real>(width);
    const Matrix sums = row_sum(input), gradient_sums = row_sum(output_gradient);  // (N, 1)
    Matrix input_gradient = input;                                                 // (N, C)
    for (std::size_t n = 0; n < num_rows; ++n) {
        const std::span<Real> x = view_of(input_gradient)[n];
        for (Real& element : x) element -= sums(n, 0) / C;
        const Real inverse_std = 1 / std::sqrt(dot_product(x, x) / C + eps);

        // The mean of the upstream gradient, and of its product with the normalized row, x̂.
        const Real gradient_mean = gradient_sums(n, 0) / C;
        const Real mean_product = dot_product(view_of(output_gradient)[n], x) * inverse_std / C;

        // dx = (dx̂ - mean(dx̂) - x̂ mean(dx̂ x̂)) / std: shifting or scaling does not change x̂.
        for (std::size_t c = 0; c < width; ++c)
            x[c] = (output_gradient(n, c) - gradient_mean - x[c] * inverse_std * mean_product) *
                   inverse_std;
    }
    return input_gradient;
}

Matrix norm_backward(const RMSNorm& norm, const Matrix& input, const Matrix& output_gradient,
                     RMSNorm& gradient) {
    const Matrix normalized_gradient =
        scale_and_shift_backward(rms_normalize(input, norm.eps), norm.weight, output_gradient,
                                 gradient.weight, gradient.bias);
    return rms_normalize_backward(input, normalized_gradient, norm.eps);
}

Matrix norm_backward(const LayerNorm& norm, const Matrix& input, const Matrix& output_gradient,
                     LayerNorm& gradient) {
    const Matrix normalized_gradient =
        scale_and_shift_backward(layer_normalize(input, norm.eps), norm.weight, output_gradient,
                                 gradient.weight, gradient.bias);
    return layer_normalize_backward(input, normalized_gradient, norm.eps);
}

Tensor3 norm_backward(const RMSNorm& norm, const Tensor3& input, const Tensor3& output_gradient,
                      RMSNorm& gradient) {
    return norm_backward_of_tokens(norm, input, output_gradient, gradient);
}

Tensor3 norm_backward(const LayerNorm& norm, const Tensor3& input,
                      const Tensor3& output_gradient, LayerNorm& gradient) {
    return norm_backward_of_tokens(norm, input, output_gradient, gradient);
}

}  // namespace llm
