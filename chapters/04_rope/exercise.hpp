// Chapter 04, exercises. Write your answers into exercise.cpp; ./learn exercise 4 checks them.
#pragma once

#include "chapters/04_rope/rope.hpp"

namespace exercise {

using namespace llm;

// (B, H, T, D), (P, D/2), (B, T) -> (B, H, T, D)
Tensor4 rotate_for_hugging_face(const Tensor4& states, const RotaryTable& table,
                                const IdMatrix& positions);

Vector frequencies(std::size_t head_dim, Real rope_theta);  // (D/2)

struct AttentionInputs {
    Tensor4 queries, keys, values;  // (B, H, T, D)
};
AttentionInputs with_positions(const AttentionInputs& inputs, const RotaryTable& table,
                               const IdMatrix& positions);

Tensor4 rotated_heads(const Tensor3& states, std::size_t num_heads,
                      Real rope_theta);  // (B, T, H*D) -> (B, H, T, D)

Tensor4 rotate_next_token(const Tensor4& states,     // (B, H, 1, D), the newest token
                          const RotaryTable& table,  // (P, D/2)
                          std::size_t cached);       // how many tokens came before it

Tensor4 shift_positions(const Tensor4& rotated,     // (B, H, T, D), rotated already
                        const Vector& frequencies,  // (D/2)
                        Id steps);                  // -> as if rotated steps positions further

Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads);

Real theta_for_context(std::size_t head_dim, Real context_length);

}  // namespace exercise
