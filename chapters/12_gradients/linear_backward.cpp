#include "chapters/12_gradients/linear_backward.hpp"

#include "common/tensors/matmul.hpp"

namespace llm {

void accumulate_product(Matrix& sum, const Matrix& left, const Matrix& right) {
    const std::array product_shape{left.shape(1), right.shape(1)};
    require(product_shape == sum.shape(), "backward: {} does not fit a gradient of {}",
            product_shape, sum.shape());
    transposed_matmul(view_of(left), view_of(right), view_of(sum), Update::accumulate);
}

void accumulate_rows(Vector& sum, const Matrix& rows) {
    const auto [num_rows, width] = dims(rows);
    require(sum.size() == width, "backward: rows of {} do not fit a gradient of {}",
            rows.shape(), sum.shape());
    for (std::size_t n = 0; n < num_rows; ++n)
        for (std::size_t c = 0; c < width; ++c) sum(c) += rows(n, c);
}

Matrix linear_backward(const Linear& linear, const Matrix& input, const Matrix& output_gradient,
                       Linear& gradient) {
    // W_oi multiplies x_i in y_o, in each row: dW_oi is the sum of dy_o x_i over the rows.
    accumulate_product(gradient.weight, output_gradient, input);  // (out, in)

    // The bias is added to each row: db is the sum of dy over the rows.
    if (linear.bias) accumulate_rows(*gradient.bias, output_gradient);

    // x_i contributes to each y_o with the factor W_oi: dx_i is the sum of dy_o W_oi.
    return matmul(output_gradient, linear.weight);  // (N, in)
}

Tensor3 linear_backward(const Linear& linear, const Tensor3& input,
                        const Tensor3& output_gradient, Linear& gradient) {
    const auto [batch_size, seq_len, in_features] = dims(input);
    const std::size_t out_features = output_gradient.shape(2), num_rows = batch_size * seq_len;
    const Matrix input_rows = reshape(input, {num_rows, in_features});
    const Matrix gradient_rows = reshape(output_gradient, {num_rows, out_features});
    return reshape(linear_backward(linear, input_rows, gradient_rows, gradient),
                   {batch_size, seq_len, in_features});
}

void embedding_backward(const IdMatrix& input_ids, const Tensor3& output_gradient,
                        Matrix& gradient) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const std::size_t width = gradient.shape(1);
    require(output_gradient.shape() == std::array{batch_size, seq_len, width},
            "backward: ids of {} and a gradient of {} do not fit an embedding of {}",
            input_ids.shape(), output_gradient.shape(), gradient.shape());

    // The gradient of a row is the sum of the gradients of all positions with this id.
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t c = 0; c < width; ++c)
                gradient(static_cast<std::size_t>(input_ids(b, t)), c) +=
                    output_gradient(b, t, c);
}

}  // namespace llm
