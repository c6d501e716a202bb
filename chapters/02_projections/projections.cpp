#include "chapters/02_projections/projections.hpp"

#include <cmath>

namespace llm {

Matrix Linear::operator()(const Matrix& inputs) const {
    const auto [count, width] = dims(inputs);
    const auto [out_features, in_features] = dims(weight);
    require(width == in_features, "linear: an input of {} does not fit a weight of {}",
            inputs.shape(), weight.shape());

    // Each row of the weight makes one output: its dot product with the input vector.
    const Matrix products = xt::linalg::dot(inputs, xt::transpose(weight));  // (N, out)
    if (!bias) return products;
    require(bias->size() == out_features, "linear: a bias of {} does not fit a weight of {}",
            bias->shape(), weight.shape());
    return products + *bias;  // the same bias for every row
}

Tensor3 Linear::operator()(const Tensor3& inputs) const {
    const auto [batch_size, seq_len, width] = dims(inputs);

    // No token knows of another here: all B*T tokens are rows of one matrix.
    const Matrix rows = reshape(inputs, {batch_size * seq_len, width});     // (B*T, in)
    return reshape((*this)(rows), {batch_size, seq_len, weight.shape(0)});  // (B, T, out)
}

Linear make_linear(std::size_t in_features, std::size_t out_features, bool with_bias,
                   Generator& generator) {
    require(in_features > 0 && out_features > 0, "linear: cannot map {} features to {}",
            in_features, out_features);

    // A sum of "in" products grows like √in. Weights of the size 1/√in cancel that.
    const Real bound = 1 / std::sqrt(static_cast<Real>(in_features));
    Linear linear;
    linear.weight = uniform({out_features, in_features}, -bound, bound, generator);
    if (with_bias) linear.bias = uniform({out_features}, -bound, bound, generator);
    return linear;
}

std::size_t num_parameters(const Linear& linear) {
    return linear.weight.size() + (linear.bias ? linear.bias->size() : 0);
}

std::string describe(const Linear& linear) {
    const auto [out_features, in_features] = dims(linear.weight);
    return "Linear(in_features=" + to_text(in_features) +
           ", out_features=" + to_text(out_features) +
           ", bias=" + (linear.bias ? "True" : "False") + ")";
}

Projections make_projections(const Config& config, Generator& generator) {
    const std::size_t hidden_size = config.hidden_size;
    const std::size_t query_width = config.num_attention_heads * config.head_dim;  // H*D
    const std::size_t kv_width = config.num_key_value_heads * config.head_dim;     // Hkv*D
    const bool bias = config.attention_bias;

    Projections projections;
    projections.q_proj = make_linear(hidden_size, query_width, bias, generator);
    projections.k_proj = make_linear(hidden_size, kv_width, bias, generator);
    projections.v_proj = make_linear(hidden_size, kv_width, bias, generator);
    projections.o_proj = make_linear(query_width, hidden_size, bias, generator);
    return projections;
}

}  // namespace llm
