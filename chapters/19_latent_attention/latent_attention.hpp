// Chapter 19, file 1 of 5 — How small can a KV cache be?
#pragma once

#include <variant>

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "chapters/17_long_context/pattern_attention.hpp"

namespace llm {

// Multi-head latent attention (MLA). A token is compressed to one latent vector of R numbers,
// from which the keys and values of all heads are computed, and one key of Dr numbers, which
// all heads share and which alone is rotated. Only these R + Dr numbers are cached. A query and
// a key of a head have Dn features without a position and Dr rotated ones; a value has Dv.
// Sources: "DeepSeek-V2" (2024), section 2.1; Hugging Face, modeling_deepseek_v3.py.

// The entries of S tokens: the normalized latent vector, then the rotated key.
struct LatentCache {
    Tensor4 entries = xt::zeros<Real>({0, 0, 0, 0});  // (B, 1, S, R + Dr), empty at first

    std::size_t seq_len() const { return entries.shape(2); }  // S
    // Appends T tokens. Throws ValueError if B or the width differ.
    void update(const Tensor4& new_entries);  // (B, 1, T, R + Dr)
    // Keeps the first tokens. Returns whether they are there.
    bool crop(std::size_t count);
};

// Queries through a narrow vector of Rq numbers, as keys and values are: fewer parameters, and
// smaller activations in training. This does not change the cache.
struct LowRankQueries {
    Linear q_a_proj;        // (Rq, C)
    RMSNorm q_a_layernorm;  // (Rq)
    Linear q_b_proj;        // (H*(Dn + Dr), Rq)
};
using QueryProjection = std::variant<Linear, LowRankQueries>;  // Linear: (H*(Dn + Dr), C)

struct LatentAttention {
    std::size_t num_attention_heads = 1;                                     // H
    std::size_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;  // Dn, Dr, Dv
    QueryProjection q_proj;
    Linear kv_a_proj_with_mqa;  // (R + Dr, C): to the latent vector and the shared key
    RMSNorm kv_a_layernorm;     // (R)
    Linear kv_b_proj;           // (H*(Dn + Dv), R): for each head W_UK, then W_UV; no bias
    Linear o_proj;              // (C, H*Dv)
    Real scale = 1;             // of the scores: 1/√(Dn + Dr)

    std::size_t kv_lora_rank() const { return kv_a_layernorm.weight.size(); }  // R

    using Inputs = PatternAttentionInputs;  // the first table, (T, Dr/2)
    using Cache = LatentCache;
    Cache make_cache() const { return {}; }

    // Without a cache, keys and values are expanded; with one, whichever order of computation
    // needs fewer FLOPs is used: see absorbed_attention.hpp. Throws ValueError if the shapes do
    // not match, or if the position ids do not begin after the cached tokens.
    AttentionLayer::Output operator()(const Tensor3& hidden_states,          // (B, T, C)
                                      const PatternAttentionInputs& inputs,  // T positions
                                      LatentCache* cache = nullptr) const;
};

struct LatentSizes {
    std::size_t hidden_size = 0, num_attention_heads = 1;                    // C, H
    std::optional<std::size_t> q_lora_rank = std::nullopt;                   // Rq
    std::size_t kv_lora_rank = 0;                                            // R
    std::size_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;  // Dn, Dr, Dv
};
// Initializes the projections in the order q, kv_a, kv_b, o, with PyTorch's defaults.
LatentAttention make_latent_attention(const LatentSizes& sizes, Real rms_norm_eps,
                                      Generator& generator);
LatentSizes sizes_of(const LatentAttention& attention);

// The parts of the layer, in this order. The backward pass calls them, too.
Tensor3 project_queries(const QueryProjection& projection,
                        const Tensor3& hidden_states);  // (B, T, C) -> (B, T, H*(Dn + Dr))
// The rotated queries of all heads: (B, H, T, Dn + Dr).
Tensor4 latent_queries(const LatentAttention& attention,
                       const Tensor3& projected,  // (B, T, H*(Dn + Dr))
                       const PatternAttentionInputs& inputs);
// What is cached of each token: (B, 1, T, R + Dr).
Tensor4 latent_entries(const LatentAttention& attention,
                       const Tensor3& compressed,  // (B, T, R + Dr), of kv_a_proj_with_mqa
                       const PatternAttentionInputs& inputs);
// The keys and values of all heads, from what is cached.
struct ExpandedKeysValues {
    Tensor4 keys;    // (B, H, S, Dn + Dr)
    Tensor4 values;  // (B, H, S, Dv)
};
ExpandedKeysValues expand(const LatentAttention& attention,
                          const Tensor4& entries);  // (B, 1, S, R + Dr)
// Attention over expanded keys and values.
AttentionOutput expanded_attention(const LatentAttention& attention,
                                   const Tensor4& queries,  // (B, H, T, Dn + Dr)
                                   const Tensor4& entries,  // (B, 1, S, R + Dr)
                                   const Tensor4& mask);    // (B, 1, T, S)

// A causal mask of T queries, which are the last of S tokens: (B, 1, T, S).
Tensor4 latent_mask(const PatternAttentionInputs& inputs, std::size_t kv_len,
                    std::size_t batch_size);

// Some of the last axis of all heads, and two parts next to each other.
Tensor4 features(const Tensor4& states,                  // (B, H, T, D)
                 std::size_t first, std::size_t count);  // -> (B, H, T, count)
Tensor4 join_features(const Tensor4& left, const Tensor4& right);
// Rotates the last Dr features of all heads. Dr may be 0: attention without positions.
Tensor4 rotate_last(const Tensor4& states, const PatternAttentionInputs& inputs,
                    std::size_t qk_rope_head_dim);

// YaRN's factor with a coefficient: 0.1 · mscale · ln(factor) + 1, or 1 if the factor is at
// most 1. DeepSeek multiplies the scale of the scores by its square with mscale_all_dim, and
// cosine and sine by the quotient of the factors with mscale and mscale_all_dim. Source:
// DeepSeek, modeling_deepseek.py, yarn_get_mscale.
Real yarn_mscale(Real factor, Real mscale);

}  // namespace llm
