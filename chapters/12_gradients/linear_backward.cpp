#include "chapters/12_gradients/linear_backward.hpp"

namespace llm {

void accumulate_product(Matrix& sum, const Matrix& left, const Matrix& right) {
    accumulate_product(sum, view_of(left), view_of(right));
}

void accumulate_product(Matrix& sum, ConstMatrixView left, ConstMatrixView right) {
    const std::array product_shape{left.num_columns, right.num_columns};
    require(product_shape == sum.shape(), "backward: {} does not fit a gradient of {}",
            product_shape, sum.shape());
    transposed_matmul(left, right, view_of(sum), Update::accumulate);
}

void accumulate_rows(Vector& sum, const Matrix& rows) { accumulate_rows(sum, view_of(rows)); }

void accumulate_rows(Vector& sum, ConstMatrixView rows) {
    const std::size_t num_rows = rows.num_rows, width = rows.num_columns;
    require(sum.size() == width, "backward: rows of {} do not fit a gradient of {}",
            std::array{num_rows, width}, sum.shape());
    for (std::size_t n = 0; n < num_rows; ++n)
        for (std::size_t c = 0; c < width; ++c) sum(c) += rows[n][c];
}

namespace {

Matrix linear_backward_of_rows(const Linear& linear, ConstMatrixView input,
                               ConstMatrixView output_gradient, Linear& gradient) {
    // W_oi multiplies x_i in y_o, in each row: dW_oi is the sum of dy_o x_i over the rows.
    accumulate_product(gradient.weight, output_gradient, input);  // (out, in)

    // The bias is added to each row: db is the sum of dy over the rows.
    if (linear.bias) accumulate_rows(*gradient.bias, output_gradient);

    // x_i contributes to each y_o with the factor W_oi: dx_i is the sum of dy_o W_oi.
    Matrix input_gradient(std::array{input.num_rows, input.num_columns});
    matmul(output_gradient, view_of(linear.weight), view_of(input_gradient));
    return input_gradient;  // (N, in)
}

// All B*T tokens as rows of one matrix, without a copy: (B, T, C) -> (B*T, C).
ConstMatrixView rows_of(const Tensor3& states) {
    const auto [batch_size, seq_len, width] = dims(states);
    return {states.data(), batch_size * seq_len, width, width};
}

}  // namespace

Matrix linear_backward(const Linear& linear, const Matrix& input, const Matrix& output_gradient,
                       Linear& gradient) {
    return linear_backward_of_rows(linear, view_of(input), view_of(output_gradient), gradient);
}

Tensor3 linear_backward(const Linear& linear, const Tensor3& input,
                        const Tensor3& output_gradient, Linear& gradient) {
    const auto [batch_size, seq_len, in_features] = dims(input);
    return reshape(
        linear_backward_of_rows(linear, rows_of(input), rows_of(output_gradient), gradient),
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
