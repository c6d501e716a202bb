// Chapter 04, exercises. Write your answers into exercise.cpp; ./learn exercise 4 checks them.
#pragma once

#include "chapters/04_rope/rope.hpp"

namespace exercise {

using namespace llm;

Tensor4 rotate_for_hugging_face(const Tensor4& states,          // (B, H, T, D)
                                const RotaryTable& table,       // (P, D/2)
                                const IdMatrix& position_ids);  // (B, T) -> (B, H, T, D)

Vector rope_frequencies(std::size_t head_dim, Real rope_theta);  // (D/2)

struct AttentionHeads {
    Tensor4 queries, keys, values;  // (B, H, T, D)
};
AttentionHeads apply_rope(const AttentionHeads& heads,
                          const RotaryTable& table,       // (P, D/2)
                          const IdMatrix& position_ids);  // (B, T)

Tensor4 rotated_heads(const Tensor3& states,  // (B, T, H*D)
                      std::size_t num_heads,
                      Real rope_theta);  // -> (B, H, T, D)

Tensor4 rotate_next_token(const Tensor4& states,     // (B, H, 1, D), the newest token
                          const RotaryTable& table,  // (P, D/2)
                          std::size_t past_len);     // how many tokens precede it

Tensor4 shift_positions(const Tensor4& rotated,             // (B, H, T, D), after RoPE
                        const Vector& inverse_frequencies,  // (D/2)
                        Id offset);                         // added to every position

Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads);

Real theta_for_context(std::size_t head_dim, Real context_length);

}  // namespace exercise
