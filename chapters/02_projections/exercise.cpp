#include "chapters/02_projections/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 2.1 — find the bug. For a square weight the shape is right, but every value is
// wrong.
Matrix project(const Matrix& inputs, const Matrix& weight) {
    return xt::linalg::dot(inputs, weight);
}

// Exercise 2.2 — find the bug. PyTorch initializes a weight uniformly between -1/√in and
// 1/√in. This function does so for a square weight only.
Matrix initial_weight(std::size_t out_features, std::size_t in_features, Generator& generator) {
    Matrix weight = xt::zeros<Real>({out_features, in_features});
    const Real bound = 1 / std::sqrt(static_cast<Real>(weight.shape(0)));
    for (Real& value : weight) value = generator.next_uniform() * (bound + bound) - bound;
    return weight;
}

// Exercise 2.3 — write project_fused: one matrix product instead of three. The rows of
// qkv_weight are q_proj's, then k_proj's, then v_proj's. (Phi-3 stores such a weight,
// qkv_proj.)
QueriesKeysValues project_fused([[maybe_unused]] const Tensor3& states,
                                [[maybe_unused]] const Matrix& qkv_weight,
                                [[maybe_unused]] std::size_t query_width,
                                [[maybe_unused]] std::size_t kv_width) {
    TODO("project_fused");
}

// Exercise 2.4 — write fold_scale: a layer whose outputs are scale times those of the given
// layer, with or without bias. (The 1/√D of chapter 05 can be folded into q_proj this way, so
// that the scores need no division.)
Linear fold_scale([[maybe_unused]] const Linear& linear, [[maybe_unused]] Real scale) {
    TODO("fold_scale");
}

}  // namespace exercise
