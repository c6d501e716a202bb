// Chapter 19, file 2 of 5: attention over the latent vectors themselves, without expanding them
// to keys and values.
#pragma once

#include "chapters/19_latent_attention/latent_attention.hpp"

namespace llm {

// The score of a query and an expanded key is q · (W_UK c) = (W_UKᵀ q) · c: the matrix can be
// applied to the query instead ("absorbed"). Then c itself is the key, the same for all heads.
// Likewise, the weighted sum of the values W_UV c is W_UV times the weighted sum of c. So this
// is multi-query attention, with one key/value head of R + Dr features, whose first R are also
// the value. RoPE would stand between the two matrices, with another rotation for each pair of
// positions: hence the features that are rotated have a key of their own. Source:
// "DeepSeek-V2", section 2.1 and appendix C.

// W_UKᵀ q in the place of the Dn features without a position: (B, H, T, R + Dr).
Tensor4 absorb_queries(const LatentAttention& attention,
                       const Tensor4& queries);  // (B, H, T, Dn + Dr)
// W_UV times the weighted sums of latent vectors: (B, H, T, R) -> (B, H, T, Dv).
Tensor4 expand_context(const LatentAttention& attention, const Tensor4& latent_context);

// The same output as expanded_attention.
AttentionOutput absorbed_attention(const LatentAttention& attention,
                                   const Tensor4& queries,  // (B, H, T, Dn + Dr)
                                   const Tensor4& entries,  // (B, 1, S, R + Dr)
                                   const Tensor4& mask);    // (B, 1, T, S)

// FLOPs of T new tokens and S tokens in the cache, the new ones included, of one layer and
// sequence, without the projections that both orders compute. Two per multiplication and
// addition.
std::uint64_t expanded_flops(const LatentSizes& sizes, std::uint64_t seq_len,  // T
                             std::uint64_t kv_len);                            // S
std::uint64_t absorbed_flops(const LatentSizes& sizes, std::uint64_t seq_len,
                             std::uint64_t kv_len);
bool absorbing_is_cheaper(const LatentSizes& sizes, std::uint64_t seq_len,
                          std::uint64_t kv_len);

}  // namespace llm
