// Chapter 19, file 5 of 5: grouped-query attention is a special case of latent attention.
#pragma once

#include "chapters/19_latent_attention/latent_attention.hpp"

namespace llm {

// A latent attention with the output of a grouped-query layer without RoPE, QK norm and biases.
// The latent vector of a token is the keys and values of all its Hkv heads, R = 2 Hkv D
// numbers; W_UK and W_UV of a query head select those of its group, so kv_b_proj consists of
// zeros and ones. The norm does nothing: its eps is far larger than any mean square, and its
// weight √eps. Throws ValueError for a layer with a QK norm or biases of q, k or v. Source:
// "TransMLA" (Meng et al., 2025), section 3.
LatentAttention latent_from_gqa(const AttentionLayer& layer);

}  // namespace llm
