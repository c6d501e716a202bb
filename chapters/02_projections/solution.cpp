#include "chapters/02_projections/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 2.1 — each output feature is the dot product of the token with one row, plus the
// bias: 2*3 + 0*1 + 1*2 + 1 = 9 and -1*3 + 1*1 + 0*2 + 0 = -2.
Vector predicted_output() { return {9, -2}; }

// Exercise 2.2 — q_proj has 8 * 16 = 128 output features, k_proj and v_proj have 2 * 16 = 32;
// o_proj maps 128 features back to 64 and has no bias.
Vector predicted_parameter_counts() {
    return {128 * 64 + 128, 32 * 64 + 32, 32 * 64 + 32, 64 * 128};
}

// Exercise 2.3 — a reshape does not move elements. The features of a token are adjacent, so
// (B*T, C) is reached by a reshape alone; (C, B*T) cuts across tokens, and transposing it does
// not put them together again.
Tensor3 project_batch(const Tensor3& states, const Linear& linear) {
    const auto [batch_size, seq_len, width] = dims(states);
    const Matrix rows = reshape(states, {batch_size * seq_len, width});
    return reshape(linear(rows), {batch_size, seq_len, linear.weight.shape(0)});
}

// Exercise 2.4 — a uniform variable between -a and a has variance a²/3, and the output has
// in * a²/3. That is 1 for a = √(3 / in).
Matrix scale_preserving_weight(std::size_t out_features, std::size_t in_features,
                               Generator& generator) {
    const Real bound = std::sqrt(3 / static_cast<Real>(in_features));
    return uniform({out_features, in_features}, -bound, bound, generator);
}

// Exercise 2.5 — rows of the weight become columns of the product, so split the last axis.
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

// Exercise 2.6 — scale * (x Wᵀ + b) = x (scale * W)ᵀ + scale * b: the bias is scaled too.
Linear fold_scale(const Linear& linear, Real scale) {
    Linear scaled{linear.weight * scale, std::nullopt};
    if (linear.bias) scaled.bias = *linear.bias * scale;
    return scaled;
}

}  // namespace exercise
