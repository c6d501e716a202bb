#include "chapters/12_gradients/backward.hpp"

#include <cmath>

namespace llm {
namespace {

Real silu_derivative(Real x) { return swish_derivative(x, 1); }

// A bias was added to every row, so it gets the sum of all rows.
void add_rows(Vector& sum, const Matrix& rows) {  // (C), (N, C)
    const auto [count, width] = dims(rows);
    for (std::size_t n = 0; n < count; ++n)
        for (std::size_t c = 0; c < width; ++c) sum(c) += rows(n, c);
}

void add_to(Tensor4& sum, std::size_t b, std::size_t h, const Matrix& head) {
    const auto [rows, width] = dims(head);
    for (std::size_t t = 0; t < rows; ++t)
        for (std::size_t d = 0; d < width; ++d) sum(b, h, t, d) += head(t, d);
}

}  // namespace

void add_product(Matrix& sum, const Matrix& left, const Matrix& right) {
    const Matrix product = xt::linalg::dot(xt::transpose(left), right);
    require(product.shape() == sum.shape(), "backward: {} does not fit a gradient of {}",
            product.shape(), sum.shape());
    for (std::size_t i = 0; i < sum.size(); ++i) sum.data()[i] += product.data()[i];
}

Matrix linear_backward(const Linear& linear, const Matrix& input, const Matrix& output_gradient,
                       Linear& gradient) {
    // W_oi multiplied x_i on its way to y_o, in every row: their product, added up.
    add_product(gradient.weight, output_gradient, input);  // (out, in)
    if (linear.bias) add_rows(*gradient.bias, output_gradient);

    // x_i went to every y_o, through W_oi.
    return xt::linalg::dot(output_gradient, linear.weight);  // (N, in)
}

void embedding_backward(const IdMatrix& input_ids, const Matrix& output_gradient,
                        Matrix& table_gradient) {
    const std::size_t width = table_gradient.shape(1);
    std::size_t n = 0;
    for (const Id id : input_ids) {
        for (std::size_t c = 0; c < width; ++c)
            table_gradient(static_cast<std::size_t>(id), c) += output_gradient(n, c);
        ++n;
    }
}

Matrix rms_norm_backward(const RMSNorm& norm, const Matrix& input,
                         const Matrix& output_gradient, RMSNorm& gradient) {
    const auto [count, width] = dims(input);
    const Real C = static_cast<Real>(width);
    Matrix input_gradient(input.shape());
    for (std::size_t n = 0; n < count; ++n) {
        Real squares = 0, along = 0;
        for (std::size_t c = 0; c < width; ++c) squares += input(n, c) * input(n, c);
        const Real inverse_rms = 1 / std::sqrt(squares / C + norm.eps);

        // How much of the gradient points along the normalised row?
        for (std::size_t c = 0; c < width; ++c)
            along += output_gradient(n, c) * norm.weight(c) * input(n, c) * inverse_rms / C;

        // That part is lost: to make the row longer changes nothing behind the norm.
        for (std::size_t c = 0; c < width; ++c) {
            const Real normalized = input(n, c) * inverse_rms;
            input_gradient(n, c) =
                (output_gradient(n, c) * norm.weight(c) - normalized * along) * inverse_rms;
            gradient.weight(c) += output_gradient(n, c) * normalized;
        }
    }
    if (norm.bias) add_rows(*gradient.bias, output_gradient);
    return input_gradient;
}

Matrix layer_norm_backward(const LayerNorm& norm, const Matrix& input,
                           const Matrix& output_gradient, LayerNorm& gradient) {
    const auto [count, width] = dims(input);
    const Real C = static_cast<Real>(width);
    Matrix input_gradient(input.shape());
    for (std::size_t n = 0; n < count; ++n) {
        Real mean = 0, variance = 0, sum = 0, along = 0;
        for (std::size_t c = 0; c < width; ++c) mean += input(n, c) / C;
        for (std::size_t c = 0; c < width; ++c)
            variance += (input(n, c) - mean) * (input(n, c) - mean) / C;
        const Real inverse_deviation = 1 / std::sqrt(variance + norm.eps);
        for (std::size_t c = 0; c < width; ++c) {
            const Real normalized = (input(n, c) - mean) * inverse_deviation;
            sum += output_gradient(n, c) * norm.weight(c) / C;
            along += output_gradient(n, c) * norm.weight(c) * normalized / C;
        }

        // Two parts are lost: along the row, and along the direction that moves its mean.
        for (std::size_t c = 0; c < width; ++c) {
            const Real normalized = (input(n, c) - mean) * inverse_deviation;
            input_gradient(n, c) =
                (output_gradient(n, c) * norm.weight(c) - sum - normalized * along) *
                inverse_deviation;
            gradient.weight(c) += output_gradient(n, c) * normalized;
        }
    }
    if (norm.bias) add_rows(*gradient.bias, output_gradient);
    return input_gradient;
}

Tensor4 rotate_back(const Tensor4& output_gradient, const RotaryTable& table,
                    const IdMatrix& positions) {
    // The gradient of a rotation is the rotation the other way: cos stays, sin changes sign.
    return rotate_split_half(output_gradient, {table.cos, table.sin * Real(-1)}, positions);
}

Matrix softmax_backward(const Matrix& weights, const Matrix& output_gradient) {
    const auto [count, width] = dims(weights);
    Matrix score_gradient(weights.shape());
    for (std::size_t t = 0; t < count; ++t) {
        // The weights of a row add up to 1: what one gains the others lose. So a score's
        // gradient is what its weight's is above the row's (weighted) mean.
        Real mean = 0;
        for (std::size_t s = 0; s < width; ++s) mean += weights(t, s) * output_gradient(t, s);
        for (std::size_t s = 0; s < width; ++s)
            score_gradient(t, s) = weights(t, s) * (output_gradient(t, s) - mean);
    }
    return score_gradient;
}

AttentionGradient attention_backward(const Tensor4& queries, const Tensor4& keys,
                                     const Tensor4& values, const Tensor4& weights,
                                     const Tensor4& context_gradient) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(queries);
    const std::size_t heads_per_kv_head = num_heads / keys.shape(1);
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));
    AttentionGradient gradient{xt::zeros<Real>(queries.shape()), xt::zeros<Real>(keys.shape()),
                               xt::zeros<Real>(values.shape())};
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const std::size_t kv_head = h / heads_per_kv_head;
            const Matrix query = head_of(queries, b, h),
                         key = head_of(keys, b, kv_head);                  // (T, D)
            const Matrix value = head_of(values, b, kv_head);              // (T, D)
            const Matrix weight = head_of(weights, b, h);                  // (T, T)
            const Matrix head_gradient = head_of(context_gradient, b, h);  // (T, D)

            // Backwards through the five steps: 5 the context, 4 the softmax, 1 and 2 the
            // scores. (3, the mask, adds a constant.)
            const Matrix value_gradient = xt::linalg::dot(xt::transpose(weight), head_gradient);
            const Matrix weight_gradient = xt::linalg::dot(head_gradient, xt::transpose(value));
            const Matrix score_gradient =
                softmax_backward(weight, weight_gradient) * scale;  // (T, T)
            const Matrix query_gradient = xt::linalg::dot(score_gradient, key);
            const Matrix key_gradient = xt::linalg::dot(xt::transpose(score_gradient), query);

            // Several query heads read one key head, and each wants something of it: they add
            // up.
            add_to(gradient.queries, b, h, query_gradient);
            add_to(gradient.keys, b, kv_head, key_gradient);
            add_to(gradient.values, b, kv_head, value_gradient);
        }
    return gradient;
}

Matrix gated_mlp_backward(const GatedMlp& mlp, const Matrix& input, const Matrix& gate,
                          const Matrix& up, const Matrix& output_gradient, GatedMlp& gradient) {
    const Activation slope = derivative_of(mlp.activation);
    Matrix product = up, gate_gradient = gate, up_gradient = up;  // (N, F)
    for (std::size_t i = 0; i < up.size(); ++i)
        product.data()[i] = mlp.activation(gate.data()[i]) * up.data()[i];
    const Matrix product_gradient =
        linear_backward(mlp.down_proj, product, output_gradient, gradient.down_proj);

    // Of a product, each factor's gradient is the other factor.
    for (std::size_t i = 0; i < up.size(); ++i) {
        const Real g = gate.data()[i], u = up.data()[i], pull = product_gradient.data()[i];
        gate_gradient.data()[i] = pull * u * slope(g);
        up_gradient.data()[i] = pull * mlp.activation(g);
    }
    return linear_backward(mlp.gate_proj, input, gate_gradient, gradient.gate_proj) +
           linear_backward(mlp.up_proj, input, up_gradient, gradient.up_proj);
}

Matrix mlp_backward(const Mlp& mlp, const Matrix& input, const Matrix& up,
                    const Matrix& output_gradient, Mlp& gradient) {
    const Activation slope = derivative_of(mlp.activation);
    Matrix bent = up;  // (N, F)
    for (Real& number : bent) number = mlp.activation(number);
    Matrix up_gradient =
        linear_backward(mlp.down_proj, bent, output_gradient, gradient.down_proj);
    for (std::size_t i = 0; i < up.size(); ++i) up_gradient.data()[i] *= slope(up.data()[i]);
    return linear_backward(mlp.up_proj, input, up_gradient, gradient.up_proj);
}

Activation derivative_of(Activation activation) {
    if (activation == relu) return relu_derivative;
    if (activation == gelu) return gelu_derivative;
    require(activation == silu, "training: this activation has no slope here");
    return silu_derivative;
}

}  // namespace llm
