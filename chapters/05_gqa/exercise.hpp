// Chapter 05, exercises. Write your answers into exercise.cpp; ./learn exercise 5 checks them.
#pragma once

#include "chapters/05_gqa/attention.hpp"

namespace exercise {

using namespace llm;

Matrix scaled_scores(const Matrix& queries, const Matrix& keys);  // (T, D), (S, D) -> (T, S)
Matrix masked_weights(const Matrix& scores, const Matrix& mask);  // (T, S), (T, S) -> (T, S)
Matrix weights_over_keys(const Matrix& scores);                   // (T, S) -> (T, S)

Tensor4 repeat_kv_heads(const Tensor4& states,              // (B, Hkv, S, D)
                        std::size_t num_key_value_groups);  // G -> (B, H, S, D)

Matrix decoder_mask(std::size_t seq_len);  // (T, T)

Tensor3 merge_and_project(const Tensor4& context,  // (B, H, T, D)
                          const Linear& o_proj);   // (C, H*D) -> (B, T, C)

// The scores of all query heads of a group in one matrix product: (G*T, D) times (D, S).
Tensor4 grouped_scores(const Tensor4& queries,  // (B, H, T, D)
                       const Tensor4& keys);    // (B, Hkv, S, D) -> (B, H, T, S)

Matrix log_softmax(const Matrix& scores);  // (N, S) -> (N, S)

AttentionOutput sliding_window_attention(const Tensor4& queries,  // (B, H, T, D)
                                         const Tensor4& keys,     // (B, Hkv, T, D)
                                         const Tensor4& values,   // (B, Hkv, T, D)
                                         std::size_t window);

}  // namespace exercise
