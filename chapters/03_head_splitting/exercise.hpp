// Chapter 03, exercises. Write your answers into exercise.cpp; ./learn exercise 3 checks them.
#pragma once

#include "chapters/03_head_splitting/head_splitting.hpp"

namespace exercise {

using namespace llm;

Tensor4 split_heads(const Tensor3& states,
                    std::size_t num_heads);      // (B, T, H*D) -> (B, H, T, D)
Tensor3 interleave_heads(const Tensor4& heads);  // (B, H, T, D) -> (B, T, D*H)
Tensor3 merge_heads(const Tensor4& heads);       // (B, H, T, D) -> (B, T, H*D)

// One head's queries: (B, T, C) -> (B, T, D).
Tensor3 project_one_head(const Tensor3& hidden_states, const Linear& q_proj, std::size_t head,
                         std::size_t head_dim);

}  // namespace exercise
