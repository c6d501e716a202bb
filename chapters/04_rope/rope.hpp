// Chapter 04 — How does a token know where it stands?
#pragma once

#include "chapters/03_head_splitting/head_splitting.hpp"

namespace llm {

// How far pair i turns from one position to the next, in radians: theta^(-2i/D). Throws
// ShapeError unless D is even and positive. Source: "RoFormer" (Su et al., 2021), section 3.2.
Vector inverse_frequencies(std::size_t head_dim, Real rope_theta);  // (D/2)

// The cosine and sine of every angle, for positions 0 to P - 1.
struct RotaryTable {
    Matrix cos;  // (P, D/2)
    Matrix sin;  // (P, D/2)
};
RotaryTable make_rotary_table(const Vector& frequencies,   // (D/2)
                              std::size_t num_positions);  // P

// Turn each pair of numbers by the angle of its token's position. The two layouts differ in
// what they call a pair; a model must be used with the one it was trained with. Both throw
// ShapeError if table or position ids do not fit, or if a position lies outside the table.
//   split-half:  numbers i and i + D/2   (Hugging Face's Llama 2 and 3, Qwen, GPT-NeoX)
//   interleaved: numbers 2i and 2i + 1   (the paper, Meta's Llama, llama2.c, GPT-J)
Tensor4 rotate_split_half(const Tensor4& states,        // (B, H, T, D)
                          const RotaryTable& table,     // (P, D/2)
                          const IdMatrix& positions);   // (B, T) -> (B, H, T, D)
Tensor4 rotate_interleaved(const Tensor4& states,       // (B, H, T, D)
                           const RotaryTable& table,    // (P, D/2)
                           const IdMatrix& positions);  // (B, T) -> (B, H, T, D)

// Two other ways to write the same rotations.
// Hugging Face: states * cos + rotate_half(states) * sin, with tables of (P, D).
Tensor4 rotate_half(const Tensor4& states);      // (x1, x2) -> (-x2, x1), both halves D/2 wide
Matrix repeat_halves(const Matrix& half_table);  // (P, D/2) -> (P, D)
// Meta: pairs as complex numbers, multiplied by e^(i angle) = cos + i sin. Interleaved.
Tensor4 rotate_complex(const Tensor4& states, const RotaryTable& table,
                       const IdMatrix& positions);  // as rotate_interleaved

// The bridge: reorders the rows of each head of W_q or W_k (and its bias) so that a layer
// trained with interleaved pairs works with split halves. Throws ShapeError unless the heads
// divide the rows evenly and D is even. Source: Hugging Face, convert_llama_weights_to_hf.py.
Linear interleaved_to_split_half(const Linear& projection, std::size_t num_heads);
Vector interleaved_to_split_half(const Vector& head_weight);  // (D), e.g. of a QK norm

// Longer contexts than the model was trained for.
// Position interpolation (Chen et al., 2023): every pair turns factor times slower.
Vector interpolate_positions(const Vector& frequencies, Real factor);  // (D/2) -> (D/2)
// NTK-aware scaling (bloc97, 2023): a theta at which the fastest pair keeps its speed and the
// slowest turns factor times slower. Throws ShapeError unless D > 2.
Real ntk_theta(Real rope_theta, Real factor, std::size_t head_dim);
// Llama 3.1's rope_scaling (type llama3), fields as in config.json: slow pairs turn factor
// times slower, fast ones keep their speed, the ones between are blended. Source: Hugging Face,
// modeling_rope_utils.py, _compute_llama3_parameters.
struct Llama3Scaling {
    Real factor = 8;
    Real low_freq_factor = 1;
    Real high_freq_factor = 4;
    Real original_max_position_embeddings = 8192;
};
Vector scale_like_llama3(const Vector& frequencies, const Llama3Scaling& scaling);  // (D/2)

// The absolute positions of the first transformer, added once to the input: sine at even and
// cosine at odd places. Source: Vaswani et al., 2017, section 3.5. Throws if C is odd.
Matrix sinusoidal_positions(std::size_t seq_len, std::size_t hidden_size);  // (T, C)

}  // namespace llm
