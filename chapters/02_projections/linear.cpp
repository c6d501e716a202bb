#include "chapters/02_projections/linear.hpp"

#include <cmath>

#include "common/tensors/matmul.hpp"

namespace llm {

Matrix Linear::operator()(const Matrix& inputs) const {
    const auto [num_rows, width] = dims(inputs);
    const auto [out_features, in_features] = dims(weight);
    require(width == in_features, "linear: an input of {} does not match a weight of {}",
            inputs.shape(), weight.shape());

    // Each output feature is the dot product of the input with one row of the weight.
    Matrix products = matmul_transposed(inputs, weight);  // (N, out)
    if (!bias) return products;
    require(bias->size() == out_features, "linear: a bias of {} does not match a weight of {}",
            bias->shape(), weight.shape());
    return products + *bias;  // broadcast over the rows
}

Tensor3 Linear::operator()(const Tensor3& inputs) const {
    const auto [batch_size, seq_len, width] = dims(inputs);

    // A linear layer maps each token independently: all B*T tokens are rows of one matrix.
    const Matrix rows = reshape(inputs, {batch_size * seq_len, width});     // (B*T, in)
    return reshape((*this)(rows), {batch_size, seq_len, weight.shape(0)});  // (B, T, out)
}

Linear make_linear(std::size_t in_features, std::size_t out_features, bool with_bias,
                   Generator& generator) {
    require(in_features > 0 && out_features > 0, "linear: cannot map {} features to {}",
            in_features, out_features);

    // The standard deviation of a sum of "in" products grows like √in. Weights of the order of
    // 1/√in compensate for that.
    const Real bound = 1 / std::sqrt(static_cast<Real>(in_features));
    Linear linear;
    linear.weight = uniform({out_features, in_features}, -bound, bound, generator);
    if (with_bias) linear.bias = uniform({out_features}, -bound, bound, generator);
    return linear;
}

std::uint64_t num_parameters(const Linear& linear) {
    return linear.weight.size() + (linear.bias ? linear.bias->size() : 0);
}

std::string describe(const Linear& linear) {
    const auto [out_features, in_features] = dims(linear.weight);
    return "Linear(in_features=" + to_text(in_features) +
           ", out_features=" + to_text(out_features) +
           ", bias=" + (linear.bias ? "True" : "False") + ")";
}

}  // namespace llm
