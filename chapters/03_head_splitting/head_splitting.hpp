// Chapter 03, file 1 of 1 — How does one vector become many heads?
#pragma once

#include "chapters/01_masking/config.hpp"

namespace llm {

// Splits the last axis into heads and moves the head axis forward, so that each head is a
// (T, D) matrix of its own. Throws ValueError unless num_heads divides the last axis.
// Source: "Attention Is All You Need" (Vaswani et al., 2017), section 3.2.2.
Tensor4 split_heads(const Tensor3& states,   // (B, T, H*D)
                    std::size_t num_heads);  // -> (B, H, T, D)

// The inverse of split_heads: concatenates the heads of each token.
Tensor3 merge_heads(const Tensor4& heads);  // (B, H, T, D) -> (B, T, H*D)

// G = H / Hkv: how many query heads share one key/value head. Hugging Face's name; in the GQA
// paper (Ainslie et al., 2023), G is the number of groups, here Hkv. Throws ValueError unless
// Hkv divides H.
std::size_t num_key_value_groups(const Config& config);

}  // namespace llm
