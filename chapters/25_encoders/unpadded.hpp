// Chapter 25, file 4 of 7: a batch without padding: the tokens of several texts in one row.
#pragma once

#include "chapters/25_encoders/encoder.hpp"

namespace llm {

// Drops the padding: the tokens of all texts, (1, N). Linear layers and norms work on each
// token alone, so they need not know where a text ends; attention gets cu_seqlens. Throws
// ValueError unless each text has a token, and padding only after its last one. Source:
// ModernBERT (Warner et al., 2024), section 2.1.2.
BatchEncoding unpad(const BatchEncoding& batch);

// The hidden states of an unpadded batch as those of a padded one, with 0 for padding.
Tensor3 pad_states(const Tensor3& row,            // (1, N, C)
                   const BatchEncoding& padded);  // -> (B, T, C)

// The share of positions that are padding, 0 to 1.
double padding_share(const BatchEncoding& padded);

}  // namespace llm
