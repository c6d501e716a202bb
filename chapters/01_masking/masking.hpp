// Chapter 01, file 1 of 2 — Which tokens may a token attend to?
#pragma once

#include <span>

#include "common/tensors/tensor.hpp"

namespace llm {

// The position of each token in its sequence: 0, 1, 2, ... in every row.
IdMatrix position_ids(std::size_t batch_size, std::size_t seq_len);  // (B, T)

// Added to the attention scores (05_gqa/attention.cpp does): 0 where query t may attend to key
// s, -inf where key s is in its future. The T queries have the last T of S positions, so the
// mask is lower-right aligned. Throws ValueError if T > S. Source: "Attention Is All You Need"
// (Vaswani et al., 2017), section 3.2.3.
Matrix causal_mask(std::size_t query_len, std::size_t kv_len);  // (T, S)

// One copy of the mask per sequence, with an axis of size 1 that broadcasts over the heads.
Tensor4 expand_mask(const Matrix& mask,       // (T, S)
                    std::size_t batch_size);  // -> (B, 1, T, S)

// Masks padding as well: -inf in every column whose padding_mask is 0. Throws ValueError if the
// batch size or kv_len of the two masks differ. (Hugging Face's tokenizers call the padding
// mask attention_mask.)
Tensor4 mask_padding(const Tensor4& mask,            // (B, 1, T, S)
                     const IdMatrix& padding_mask);  // (B, S), 1 for a token, 0 for padding

// Position ids that start at the first token of each row; padding gets 1, as in Hugging Face's
// generate().
IdMatrix position_ids(const IdMatrix& padding_mask);  // (B, S) -> (B, S)

// exp(x) / sum(exp(x)) over the last axis: weights between 0 and 1 that sum to 1. A fully
// masked row, all -inf, gives zeros (PyTorch gives NaN).
Matrix softmax(const Matrix& scores);    // (N, S) -> (N, S)
Tensor4 softmax(const Tensor4& scores);  // (B, H, T, S) -> (B, H, T, S)

// ln(sum of e^score) of a row of scores: score - log_sum_exp is the logarithm of its softmax.
// Subtracts the maximum first, which avoids overflow, and adds in double. Source:
// torch.logsumexp.
double log_sum_exp(std::span<const Real> scores);  // (S)

}  // namespace llm
