// Chapter 02, exercises. Write your answers into exercise.cpp; ./learn exercise 2 checks them.
#pragma once

#include "chapters/02_projections/projections.hpp"

namespace exercise {

using namespace llm;

Vector predicted_output();            // (2)
Vector predicted_parameter_counts();  // (4): q, k, v, o

Tensor3 project_batch(const Tensor3& states,  // (B, T, C)
                      const Linear& linear);  // (out, C) -> (B, T, out)
Matrix scale_preserving_weight(std::size_t out_features, std::size_t in_features,
                               Generator& generator);  // (out, in)

struct QueriesKeysValues {
    Tensor3 queries;  // (B, T, H*D)
    Tensor3 keys;     // (B, T, Hkv*D)
    Tensor3 values;   // (B, T, Hkv*D)
};
QueriesKeysValues project_fused(const Tensor3& states,     // (B, T, C)
                                const Matrix& qkv_weight,  // (H*D + 2*Hkv*D, C)
                                std::size_t query_width,   // H*D
                                std::size_t kv_width);     // Hkv*D

Linear fold_scale(const Linear& linear, Real scale);

}  // namespace exercise
