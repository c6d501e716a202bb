// Chapter 05 — How does a token take from others?
#pragma once

#include "chapters/04_rope/rope.hpp"

namespace llm {

// One head of one sequence, as a matrix of its own.
Matrix head_of(const Tensor4& states, std::size_t b, std::size_t h);  // (B, H, T, D) -> (T, D)

// Attention of one head. Source: Vaswani et al., 2017, section 3.2.1. Throws ShapeError, with
// both shapes, if queries, keys, values and mask do not fit.
Matrix attention_scores(const Matrix& queries,  // (T, D)
                        const Matrix& keys);    // (S, D) -> (T, S), q kᵀ / √D
struct HeadAttention {
    Matrix weights;  // (T, S): how much each query takes from each key; rows add up to 1
    Matrix context;  // (T, D): what it took
};
HeadAttention attention(const Matrix& queries,  // (T, D)
                        const Matrix& keys,     // (S, D)
                        const Matrix& values,   // (S, D)
                        const Matrix& mask);    // (T, S), 0 or -inf

// The same for all heads of all sequences.
struct Attention {
    Tensor4 weights;  // (B, H, T, S)
    Tensor4 context;  // (B, H, T, D)
};
// Every query head has a key and a value head of its own. Throws ShapeError if H differs.
Attention multi_head_attention(const Tensor4& queries,  // (B, H, T, D)
                               const Tensor4& keys,     // (B, H, S, D)
                               const Tensor4& values,   // (B, H, S, D)
                               const Tensor4& mask);    // (B, 1, T, S)
// G = H / Hkv neighbouring query heads share one: query head h reads key/value head h / G.
// Hkv = H is multi-head, Hkv = 1 multi-query attention. Throws ShapeError unless Hkv divides H.
// Source: "GQA" (Ainslie et al., 2023).
Attention grouped_query_attention(const Tensor4& queries,  // (B, H, T, D)
                                  const Tensor4& keys,     // (B, Hkv, S, D)
                                  const Tensor4& values,   // (B, Hkv, S, D)
                                  const Tensor4& mask);    // (B, 1, T, S)

// Each key/value head G times in a row: 0 0 0 1 1 1. Then multi-head attention gives what
// grouped-query attention gives. Source: Hugging Face, modeling_llama.py, repeat_kv.
Tensor4 repeat_kv(const Tensor4& states,              // (B, Hkv, S, D)
                  std::size_t num_key_value_groups);  // G -> (B, H, S, D)

// x / sqrt(mean(x²) + eps) along the last axis, without weights. Source: "Root Mean Square
// Layer Normalization" (Zhang and Sennrich, 2019); Llama 4 normalises queries and keys so.
Matrix rms_normalize(const Matrix& rows, Real eps);      // (N, D) -> (N, D)
Tensor4 rms_normalize(const Tensor4& states, Real eps);  // (B, H, T, D) -> (B, H, T, D)

// Training only: sets each weight to 0 with the given probability and divides the others by
// 1 - probability, so that the mean stays. Throws ShapeError unless 0 <= probability < 1.
Tensor4 dropout(const Tensor4& weights, Real probability, Generator& generator);

// A whole attention layer. With config.use_qk_norm, queries and keys are normalised: after the
// rotation and without weights as in Llama 4, or, if norm weights are given, before it as in
// Qwen3. Throws ShapeError if only one of the two norms is given, or without use_qk_norm.
struct AttentionLayer {
    Config config;
    Projections projections;
    std::optional<Vector> q_norm, k_norm;  // (D) each: Qwen3's weights

    Tensor3 operator()(const Tensor3& hidden_states,  // (B, T, C)
                       const RotaryTable& table,      // (P, D/2)
                       const IdMatrix& positions,     // (B, T)
                       const Tensor4& mask) const;    // (B, 1, T, T) -> (B, T, C)

    // What happens to queries or keys between projection and scores.
    Tensor4 placed(const Tensor4& heads, const std::optional<Vector>& norm,
                   const RotaryTable& table, const IdMatrix& positions) const;
};

// Bytes that a cache keeps for every token: a key and a value of D numbers, for each key/value
// head of each layer.
std::size_t kv_cache_bytes_per_token(std::size_t num_hidden_layers,
                                     std::size_t num_key_value_heads, std::size_t head_dim,
                                     std::size_t bytes_per_number);

}  // namespace llm
