// Chapter 05, exercises. Write your answers into exercise.cpp; ./learn exercise 5 checks them.
#pragma once

#include "chapters/05_gqa/attention.hpp"

namespace exercise {

using namespace llm;

Vector predicted_context();             // (4)
double predicted_standard_deviation();  // of the scores
Vector predicted_kv_heads();            // (6)
Vector predicted_cache_mib();           // (2)

Matrix training_weights(const Matrix& queries,  // (T, D)
                        const Matrix& keys);    // (T, D) -> (T, T)

Matrix masked_weights(const Matrix& scores,  // (T, S)
                      const Matrix& mask);   // (T, S), 0 or -inf -> (T, S)

Tensor4 context_by_kv_head(const Tensor4& queries,  // (B, H, T, D)
                           const Tensor4& keys,     // (B, Hkv, S, D)
                           const Tensor4& values,   // (B, Hkv, S, D)
                           const Tensor4& mask);    // (B, 1, T, S) -> (B, H, T, D)

// The scores of all query heads of a group in one matrix product: (G*T, D) times (D, S).
Tensor4 grouped_scores(const Tensor4& queries,  // (B, H, T, D)
                       const Tensor4& keys);    // (B, Hkv, S, D) -> (B, H, T, S)

// Attention from an empty file, in four steps.
Matrix dot_product_scores(const Matrix& queries,  // (T, D)
                          const Matrix& keys);    // (S, D) -> (T, S)

Matrix causal_weights(const Matrix& scores);  // (T, S) -> (T, S)

struct HeadSizes {
    std::size_t num_attention_heads;  // H
    std::size_t num_key_value_heads;  // Hkv
    std::size_t head_dim;             // D
};
Matrix head_context(const Tensor3& queries,         // (B, T, H*D)
                    const Tensor3& keys,            // (B, S, Hkv*D)
                    const Tensor3& values,          // (B, S, Hkv*D)
                    const HeadSizes& sizes,         // H, Hkv, D
                    std::size_t b, std::size_t h);  // -> (T, D)

Tensor3 attention_from_projections(const Tensor3& queries,   // (B, T, H*D)
                                   const Tensor3& keys,      // (B, S, Hkv*D)
                                   const Tensor3& values,    // (B, S, Hkv*D)
                                   const HeadSizes& sizes);  // -> (B, T, H*D)

}  // namespace exercise
