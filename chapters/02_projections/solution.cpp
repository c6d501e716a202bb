#include "chapters/02_projections/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 2.1 — the weight is stored as (out, in); the matrix product needs (in, out).
Matrix project(const Matrix& inputs, const Matrix& weight) {
    return xt::linalg::dot(inputs, xt::transpose(weight));
}

// Exercise 2.2 — "in" is the last axis. Axis 0 is "out".
Matrix initial_weight(std::size_t out_features, std::size_t in_features, Generator& generator) {
    Matrix weight = xt::zeros<Real>({out_features, in_features});
    const Real bound = 1 / std::sqrt(static_cast<Real>(weight.shape(1)));
    for (Real& value : weight) value = generator.next_uniform() * (bound + bound) - bound;
    return weight;
}

// Exercise 2.3 — rows of the weight become columns of the product, so split the last axis.
QueriesKeysValues project_fused(const Tensor3& states, const Matrix& qkv_weight,
                                std::size_t query_width, std::size_t kv_width) {
    const Linear qkv_proj{qkv_weight, std::nullopt};
    const Tensor3 qkv = qkv_proj(states);  // (B, T, H*D + 2*Hkv*D)
    const auto columns = [&](std::size_t begin, std::size_t width) -> Tensor3 {
        return xt::view(qkv, xt::all(), xt::all(), xt::range(begin, begin + width));
    };
    return {columns(0, query_width), columns(query_width, kv_width),
            columns(query_width + kv_width, kv_width)};
}

// Exercise 2.4 — scale * (x Wᵀ + b) = x (scale * W)ᵀ + scale * b: the bias is scaled too.
Linear fold_scale(const Linear& linear, Real scale) {
    Linear scaled{linear.weight * scale, std::nullopt};
    if (linear.bias) scaled.bias = *linear.bias * scale;
    return scaled;
}

}  // namespace exercise
