// Chapter 04, exercises. Write your answers into exercise.cpp; ./learn exercise 4 checks them.
#pragma once

#include "chapters/04_rope/rope.hpp"

namespace exercise {

using namespace llm;

Vector predicted_rotation();  // (4)
Vector predicted_scores();    // (4)
Vector predicted_changes();   // (5)

Tensor4 rotate_with_wide_tables(const Tensor4& states,      // (B, H, T, D)
                                const RotaryTable& table);  // (P, D/2) -> (B, H, T, D)

Tensor4 heads_with_rope(const Tensor3& states,  // (B, T, H*D)
                        std::size_t num_heads,
                        Real rope_theta);  // -> (B, H, T, D)

Tensor4 append_key(const Tensor4& cached_keys,  // (B, Hkv, S, D), after RoPE
                   const Tensor4& new_key,      // (B, Hkv, 1, D), before RoPE
                   const RotaryTable& table);   // (P, D/2) -> (B, Hkv, S + 1, D), after RoPE

Tensor4 shift_positions(const Tensor4& rotated,             // (B, H, T, D), after RoPE
                        const Vector& inverse_frequencies,  // (D/2)
                        Id offset);                         // added to every position

Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads);

Real theta_for_context(std::size_t head_dim, Real context_length);

}  // namespace exercise
