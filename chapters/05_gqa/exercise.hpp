// Chapter 05, exercises. Write your answers into exercise.cpp; ./learn exercise 5 checks them.
#pragma once

#include "chapters/05_gqa/attention.hpp"

namespace exercise {

using namespace llm;

Matrix scaled_scores(const Matrix& queries, const Matrix& keys);  // (T, D), (S, D) -> (T, S)
Matrix masked_weights(const Matrix& scores, const Matrix& mask);  // (T, S), (T, S) -> (T, S)
Matrix weights_over_keys(const Matrix& scores);                   // (T, S) -> (T, S)
Tensor4 heads_for_queries(const Tensor4& states,
                          std::size_t num_key_value_groups);  // (B, Hkv, S, D) -> (B, H, S, D)
Matrix mask_for_attention(std::size_t seq_len);               // (T, T)
Tensor3 layer_output(const Tensor4& context,
                     const Linear& o_proj);  // (B, H, T, D) -> (B, T, C)

// All query heads of a group in one product: (G*T, D) times (D, S).
// (B, H, T, D), (B, Hkv, S, D) -> (B, H, T, S)
Tensor4 grouped_scores(const Tensor4& queries, const Tensor4& keys);

Matrix log_softmax(const Matrix& scores);  // (N, S) -> (N, S)

Attention sliding_window_attention(const Tensor4& queries,  // (B, H, T, D)
                                   const Tensor4& keys,     // (B, Hkv, T, D)
                                   const Tensor4& values,   // (B, Hkv, T, D)
                                   std::size_t window);

}  // namespace exercise
