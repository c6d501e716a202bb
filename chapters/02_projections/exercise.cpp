#include "chapters/02_projections/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 2.1 — predict: a linear layer has the weight {{2, 0, 1}, {-1, 1, 0}} and the bias
// {1, 0}. Its input is the token {3, 1, 2}.
Vector predicted_output() {
    TODO("predicted_output");
    // return {?, ?};
}

// Exercise 2.2 — predict: the parameters of q_proj, k_proj, v_proj and o_proj for a hidden size
// of 64, 8 query heads, 2 key/value heads and a head_dim of 16. As in Qwen2, only q, k and v
// have a bias.
Vector predicted_parameter_counts() {
    TODO("predicted_parameter_counts");
    // return {?, ?, ?, ?};
}

// Exercise 2.3 — find the bug. The function applies a layer to all tokens of a batch.
Tensor3 project_batch(const Tensor3& states, const Linear& linear) {
    const auto [batch_size, seq_len, width] = dims(states);
    const Matrix columns = reshape(states, {width, batch_size * seq_len});
    const Matrix rows = xt::transpose(columns);  // (B*T, C)
    return reshape(linear(rows), {batch_size, seq_len, linear.weight.shape(0)});
}

// Exercise 2.4 — find the bug. With these uniformly distributed weights, the outputs of a layer
// should have the same standard deviation as its inputs.
Matrix scale_preserving_weight(std::size_t out_features, std::size_t in_features,
                               Generator& generator) {
    const Real bound = 1 / std::sqrt(static_cast<Real>(in_features));
    return uniform({out_features, in_features}, -bound, bound, generator);
}

// Exercise 2.5 — write project_fused: one matrix product instead of three. The rows of
// qkv_weight are q_proj's, then k_proj's, then v_proj's. (Phi-3 stores such a weight,
// qkv_proj.)
QueriesKeysValues project_fused([[maybe_unused]] const Tensor3& states,
                                [[maybe_unused]] const Matrix& qkv_weight,
                                [[maybe_unused]] std::size_t query_width,
                                [[maybe_unused]] std::size_t kv_width) {
    TODO("project_fused");
}

// Exercise 2.6 — write fold_scale: a layer whose outputs are scale times those of the given
// layer, with or without bias. (The 1/√D of chapter 05 can be folded into q_proj this way, so
// that the scores need no division.)
Linear fold_scale([[maybe_unused]] const Linear& linear, [[maybe_unused]] Real scale) {
    TODO("fold_scale");
}

}  // namespace exercise
