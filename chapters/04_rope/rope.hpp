// Chapter 04, file 1 of 2 — How does attention know the positions of tokens?
#pragma once

#include "chapters/02_projections/linear.hpp"

namespace llm {

// The angular frequency of each pair: its rotation from one position to the next, in radians,
// theta^(-2i/D) for pair i. Hugging Face calls it inv_freq. Throws ValueError unless D is even
// and positive. Source: "RoFormer" (Su et al., 2021), section 3.2.
Vector inverse_frequencies(std::size_t head_dim, Real rope_theta);  // (D/2)

// The cosine and sine of every rotation angle, for positions 0 to P - 1.
struct RotaryTable {
    Matrix cos;  // (P, D/2)
    Matrix sin;  // (P, D/2)
    // Features at the end of a head that are not rotated (partial rotary); the rest is then D.
    std::size_t num_unrotated = 0;
};
RotaryTable make_rotary_table(const Vector& inverse_frequencies,  // (D/2)
                              std::size_t num_positions);         // P

// Which two features of a head form pair i. A model must be used with the layout that it was
// trained with.
enum class RopeLayout {
    split_half,  // i and i + D/2: rotate-half or GPT-NeoX style; Hugging Face's Llama and Qwen
    interleaved  // 2i and 2i + 1: GPT-J style; the paper, Meta's Llama, llama2.c
};

// RoPE: rotates each pair of features by the angle of its token's position. Throws ValueError
// if the shapes do not match, or if a position lies outside the table.
Tensor4 apply_rotary_embedding(const Tensor4& states,                        // (B, H, T, D)
                               const RotaryTable& table,                     // (P, D/2)
                               const IdMatrix& position_ids,                 // (B, T)
                               RopeLayout layout = RopeLayout::split_half);  // (B, H, T, D)

// Two other ways to write the same rotations.
// Hugging Face: states * cos + rotate_half(states) * sin, with tables of (P, D). Split halves.
Tensor4 rotate_half(const Tensor4& states);      // (x1, x2) -> (-x2, x1), both halves D/2 wide
Matrix repeat_halves(const Matrix& half_table);  // PyTorch: torch.cat((freqs, freqs), dim=-1)
// Meta: pairs as complex numbers, multiplied by e^(j·angle) = cos + j·sin. Interleaved.
Tensor4 apply_rotary_embedding_complex(const Tensor4& states,          // (B, H, T, D)
                                       const RotaryTable& table,       // (P, D/2)
                                       const IdMatrix& position_ids);  // (B, T)

// Converts weights between RoPE layouts: reorders the rows of each head of q_proj or k_proj
// (and its bias), trained with interleaved pairs, so that the layer works with split halves.
// Throws ValueError unless the heads divide the rows evenly and D is even. Source: Hugging
// Face, convert_llama_weights_to_hf.py.
Linear interleaved_to_split_half(const Linear& projection, std::size_t num_heads);
// The index, with interleaved pairs, of the row or feature that has this index with split
// halves (of each head, even indices come first, then odd ones), and the inverse.
std::size_t interleaved_index(std::size_t index, std::size_t head_dim);
std::size_t split_half_index(std::size_t index, std::size_t head_dim);
Vector interleaved_to_split_half(const Vector& head_weight);  // (D), e.g. of a QK norm

// The absolute position embeddings of the original Transformer, added to the token embeddings:
// sine at even features, cosine at odd ones. Throws ValueError if C is odd. Source: Vaswani et
// al., 2017, section 3.5, "Positional Encoding".
Matrix sinusoidal_positions(std::size_t seq_len, std::size_t hidden_size);  // (T, C)

}  // namespace llm
