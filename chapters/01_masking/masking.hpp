// Chapter 01 — Which tokens may a token look at?
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// The sizes of an attention layer under the names of Hugging Face's config.json, with the
// values of the walk through chapters 01 to 05.
struct Config {
    std::size_t hidden_size = 128;              // C: numbers per token
    std::size_t num_attention_heads = 16;       // H: query heads
    std::size_t num_key_value_heads = 4;        // Hkv: key and value heads, divides H
    std::size_t head_dim = 0;                   // D: numbers per head; 0 means C / H
    std::size_t max_position_embeddings = 256;  // the longest sequence
    Real rope_theta = 10000;                    // slows the rotations of chapter 04 down
    Real rms_norm_eps = 1e-5f;                  // keeps chapter 07 from dividing by zero
    bool attention_bias = false;                // do the projections of chapter 02 add a bias?
    Real attention_dropout = 0;                 // share of weights dropped in training (05)
    bool use_qk_norm = true;                    // normalise queries and keys (05)?
};

// Fills in head_dim and checks that everything fits together. Throws ShapeError if a size is
// 0, if H does not divide C (unless head_dim is given), if Hkv does not divide H, or if the
// sequence is longer than the model's positions.
Config complete(Config config, std::size_t seq_len);

// Where each token stands in its sequence: 0, 1, 2, ... in every row.
IdMatrix position_ids(std::size_t batch_size, std::size_t seq_len);  // (B, T)

// What is added to attention scores: 0 where query t may look at key s, -inf where s lies in
// its future. The T queries are the last T of S positions. Throws ShapeError if T > S.
// Source: "Attention Is All You Need" (Vaswani et al., 2017), section 3.2.3.
Matrix causal_mask(std::size_t query_len, std::size_t kv_len);  // (T, S)

// One copy of the mask per sequence, and an axis of size 1 that stands for all heads.
Tensor4 expand_mask(const Matrix& mask, std::size_t batch_size);  // (T, S) -> (B, 1, T, S)

// Hides padding as well: -inf in every column whose token_mask is 0. Throws ShapeError if B or
// S differ. (Hugging Face calls the token mask attention_mask, too.)
// (B, 1, T, S) and (B, S), 1 for a token and 0 for padding, -> (B, 1, T, S).
Tensor4 hide_padding(const Tensor4& mask, const IdMatrix& token_mask);

// Positions that start at the first real token of each row; padding gets 1, as in Hugging Face.
IdMatrix position_ids(const IdMatrix& token_mask);  // (B, S) -> (B, S)

// exp(x) / sum of exp(x) along the last axis: numbers from 0 to 1 that add up to 1. A row of
// -inf alone gives a row of zeros: who sees nothing takes nothing (PyTorch gives NaN).
Matrix softmax(const Matrix& scores);    // (N, S) -> (N, S)
Tensor4 softmax(const Tensor4& scores);  // (B, H, T, S) -> (B, H, T, S)

}  // namespace llm
