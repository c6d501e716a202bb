// Chapter 03, exercises. Write your answers into exercise.cpp; ./learn exercise 3 checks them.
#pragma once

#include "chapters/02_projections/linear.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"

namespace exercise {

using namespace llm;

Vector predicted_elements();                     // (2)
Vector predicted_kv_heads();                     // (4)
Tensor4 fused_queries(const Tensor3& fused,      // (B, T, 3*H*D)
                      std::size_t num_heads);    // H -> (B, H, T, D)
Tensor3 interleave_heads(const Tensor4& heads);  // (B, H, T, D) -> (B, T, D*H)

// The queries of one head.
Tensor3 project_one_head(const Tensor3& hidden_states,  // (B, T, C)
                         const Linear& q_proj,          // weight (H*D, C)
                         std::size_t head,              // h
                         std::size_t head_dim);         // D -> (B, T, D)

}  // namespace exercise
