// Chapter 26, exercises. Write your answers into exercise.cpp; ./learn exercise 26 checks them.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "chapters/26_encoder_decoder/encoder_decoder.hpp"

namespace exercise {

using namespace llm;

IdVector predicted_buckets();  // (4)
IdVector predicted_cached();   // (2)

// The biases of T new tokens, which are the last ones of S.
Tensor4 position_bias(const RelativePositionBias& bias, std::size_t query_len,  // T
                      std::size_t kv_len);                                      // S

// In how many ways a word can be written as a sequence of tokens. The empty word can in one.
std::uint64_t num_segmentations(const std::string& word, const std::set<std::string>& tokens);

// Cross-attention with its cache from an empty file, in four steps: one text, one head, and
// scores divided by √D, as in BART.
struct CrossAttentionHead {
    Linear q_proj, k_proj, v_proj;  // (D, C)
    Linear o_proj;                  // (C, D)
};
struct EncodedKeys {
    Matrix keys, values;  // (S, D)
};
EncodedKeys project_text(const CrossAttentionHead& head,
                         const Matrix& encoder_states);  // (S, C)
Matrix cross_weights(const Matrix& queries,              // (T, D)
                     const Matrix& keys,                 // (S, D)
                     const IdVector& padding_mask);      // (S), 0 for padding -> (T, S)
// An empty cache is filled; a full one is used, and encoder_states are not read.
Matrix cross_attention(const CrossAttentionHead& head,
                       const Matrix& hidden_states,         // (T, C), of the decoder
                       const Matrix& encoder_states,        // (S, C)
                       const IdVector& padding_mask,        // (S)
                       std::optional<EncodedKeys>& cache);  // -> (T, C)
// The multiply-adds of cross_attention for one token (T = 1): those of matrix products alone,
// without division and softmax.
std::uint64_t multiply_adds(std::uint64_t hidden_size, std::uint64_t head_dim,
                            std::uint64_t text_len, bool cache_is_full);

}  // namespace exercise
