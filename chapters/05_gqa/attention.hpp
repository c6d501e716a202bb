// Chapter 05, file 1 of 4 — How does a token attend to other tokens?
#pragma once

#include <functional>
#include <variant>

#include "chapters/02_projections/projections.hpp"
#include "chapters/04_rope/rope.hpp"
#include "chapters/05_gqa/kv_cache.hpp"

namespace llm {

// One head of one sequence, a copy (PyTorch: states[b, h]).
Matrix head_of(const Tensor4& states, std::size_t b, std::size_t h);  // (B, H, T, D) -> (T, D)

// Scaled dot-product attention of one head. Throws ValueError, with both shapes, if the shapes
// do not match. Source: Vaswani et al., 2017, section 3.2.1.
Matrix attention_scores(const Matrix& queries,  // (T, D)
                        const Matrix& keys);    // (S, D) -> (T, S), q kᵀ / √D
struct HeadAttentionOutput {
    Matrix weights;  // (T, S): softmax over the keys; each row sums to 1
    Matrix context;  // (T, D): the weighted sum of the values
};
HeadAttentionOutput attention(const Matrix& queries,  // (T, D)
                              const Matrix& keys,     // (S, D)
                              const Matrix& values,   // (S, D)
                              const Matrix& mask);    // (T, S), 0 or -inf
// What each head computes; h is the index of the query head. By default it is `attention`, for
// every h. (PyTorch: torch.nn.functional.scaled_dot_product_attention.)
using HeadAttention =
    std::function<HeadAttentionOutput(const Matrix& queries, const Matrix& keys,
                                      const Matrix& values, const Matrix& mask, std::size_t h)>;
HeadAttentionOutput scaled_dot_product_attention(const Matrix& queries, const Matrix& keys,
                                                 const Matrix& values, const Matrix& mask,
                                                 std::size_t h);

// The same for all heads of all sequences.
struct AttentionOutput {
    Tensor4 weights;  // (B, H, T, S)
    Tensor4 context;  // (B, H, T, D)
};
// Each query head has a key and a value head of its own. Throws ValueError if H differs.
AttentionOutput multi_head_attention(const Tensor4& queries,  // (B, H, T, D)
                                     const Tensor4& keys,     // (B, H, S, D)
                                     const Tensor4& values,   // (B, H, S, D)
                                     const Tensor4& mask);    // (B, 1, T, S)
// Query head h uses key/value head h / G, where G = H / Hkv: G adjacent query heads share one.
// Hkv = H is multi-head, Hkv = 1 multi-query attention. Throws ValueError unless Hkv divides H.
// Source: "GQA" (Ainslie et al., 2023).
AttentionOutput grouped_query_attention(
    const Tensor4& queries,  // (B, H, T, D)
    const Tensor4& keys,     // (B, Hkv, S, D)
    const Tensor4& values,   // (B, Hkv, S, D)
    const Tensor4& mask,     // (B, 1, T, S)
    const HeadAttention& head_attention = scaled_dot_product_attention);

// Repeats each key/value head G times (torch.repeat_interleave on dim 1): heads 0 0 0 1 1 1.
// Multi-head attention with repeated heads equals grouped-query attention. Source: Hugging
// Face, modeling_llama.py, repeat_kv.
Tensor4 repeat_kv(const Tensor4& states,              // (B, Hkv, S, D)
                  std::size_t num_key_value_groups);  // G -> (B, H, S, D)

// QK norm: a normalization of queries and keys before their dot products.
struct NoQKNorm {};            // Llama 2 and 3
struct QKNormWithoutWeights {  // Llama 4: rms_normalize, after RoPE
    Real eps = Real(1e-5);
};
// Before RoPE: RMSNorm over the D features of each head (Qwen3), or over all H*D or Hkv*D
// features of a token (OLMo 2); the number of weights says which.
struct QKNormWithWeights {
    Vector q_weight, k_weight;  // (D) each, or (H*D) and (Hkv*D)
    Real eps = Real(1e-6);
};
using QKNorm = std::variant<NoQKNorm, QKNormWithoutWeights, QKNormWithWeights>;

// The queries, keys and values of T tokens, split into heads.
struct QueriesKeysValues {
    Tensor4 queries;  // (B, H, T, D)
    Tensor4 keys;     // (B, Hkv, T, D)
    Tensor4 values;   // (B, Hkv, T, D)
};

// The inputs of attention other than the hidden states. position_ids and attention_mask are
// Hugging Face's names; its layers receive position_embeddings = (cos, sin) instead of the
// table.
struct AttentionInputs {
    RotaryTable rotary_table;  // (P, D/2)
    IdMatrix position_ids;     // (B, T)
    Tensor4 attention_mask;    // (B, 1, T, S), 0 or -inf

    // What a model makes for its layers: causal_attention_inputs, with its only rotary table.
    static AttentionInputs make(const std::vector<RotaryTable>& rotary_tables,
                                std::size_t batch_size, std::size_t seq_len,
                                std::size_t past_len = 0);
};
// For T tokens that follow past_len cached ones: position ids past_len to past_len + T - 1, and
// a causal mask of S = past_len + T columns. Throws ValueError if the table is too short.
AttentionInputs causal_attention_inputs(const RotaryTable& rotary_table,  // (P, D/2)
                                        std::size_t batch_size, std::size_t seq_len,
                                        std::size_t past_len = 0);
AttentionInputs causal_attention_inputs(const Config& config,  // with past_len 0 and P = T
                                        std::size_t batch_size, std::size_t seq_len);

// A self-attention layer, composed of the functions below. Source: Hugging Face,
// modeling_llama.py, LlamaAttention.
struct AttentionLayer {
    std::size_t num_attention_heads = 1;  // H
    std::size_t num_key_value_heads = 1;  // Hkv
    Projections projections;
    QKNorm qk_norm = NoQKNorm{};
    Real attention_dropout = 0;  // probability, in training only (chapter 12)

    // What a model makes for its attention layers: their inputs, and an empty cache.
    using Inputs = AttentionInputs;
    using Cache = LayerCache;
    Cache make_cache() const { return {}; }

    struct Output {
        Tensor3 hidden_states;  // (B, T, C)
        Tensor4 attentions;     // (B, H, T, S): the weights
    };
    // With a cache, the T new tokens attend to the S - T cached ones, too. Throws ValueError if
    // the shapes do not match.
    Output operator()(const Tensor3& hidden_states,   // (B, T, C)
                      const AttentionInputs& inputs,  // T positions, S columns of the mask
                      LayerCache* cache = nullptr) const;
};
AttentionLayer make_attention_layer(const Config& config, Generator& generator);

// The parts of a layer, in this order. Chapters 11, 12 and 15 call them, too.
QueriesKeysValues project_qkv(const AttentionLayer& layer,
                              const Tensor3& hidden_states);  // (B, T, C)
// Normalizes and rotates queries and keys, in the order that the QK norm requires. Values are
// not changed. Throws ValueError if the weights of the norm do not have D elements.
QueriesKeysValues apply_qk_norm_and_rope(const QKNorm& qk_norm, const QueriesKeysValues& heads,
                                         const AttentionInputs& inputs);
Tensor3 project_output(const AttentionLayer& layer,
                       const Tensor4& context);  // (B, H, T, D) -> (B, T, C)

}  // namespace llm
