// Chapter 17, exercises. Write your answers into exercise.cpp; ./learn exercise 17 checks them.
#pragma once

#include "chapters/17_long_context/pattern_attention.hpp"
#include "chapters/17_long_context/yarn.hpp"

namespace exercise {

using namespace llm;

// The mask of a sliding window for T queries and T keys: 0 where a query attends to a key, -inf
// elsewhere.
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window);  // (T, T)

// One decode step: rotates query and key of the next token, updates the cache, and computes
// attention with a scale of 1/√D. Returns the context, (1, H, 1, D).
Tensor4 decode_step(const QueriesKeysValues& projected,  // (1, H, 1, D), (1, Hkv, 1, D)
                    const RotaryTable& rotary_table,     // (P, D/2)
                    RollingCache& cache);

// Attention of one head with a learned sink, as in gpt-oss. Returns the context, (T, D).
Matrix attention_with_sink(const Matrix& queries,  // (T, D)
                           const Matrix& keys,     // (S, D)
                           const Matrix& values,   // (S, D)
                           const Matrix& mask,     // (T, S), 0 or -inf
                           Real sink);

// Attention of one head with a sliding window, with a scale of 1/√D, in time and memory
// proportional to T·W instead of T². Throws ValueError if the window is 0. Returns the context.
Matrix windowed_attention(const Matrix& queries,  // (T, D)
                          const Matrix& keys,     // (T, D)
                          const Matrix& values,   // (T, D)
                          std::size_t window);    // W -> (T, D)

// YaRN's frequencies as its paper defines them, by the number of rotations of each pair.
Vector ntk_by_parts(const Vector& inverse_frequencies,  // (D/2)
                    Real factor, Real original_max_position_embeddings, Real beta_slow,
                    Real beta_fast);  // -> (D/2)

Vector predicted_reach();          // (2)
Vector predicted_cached_tokens();  // (3)
Vector predicted_weights();        // (2)

// The last W tokens of one head: the token of position p is in row p mod W.
struct Ring {
    Matrix keys, values;      // (W, D), 0 at first
    std::size_t seq_len = 0;  // tokens so far, also the overwritten ones
};
// T new tokens attend, with a window of W and a scale of 1/√D, to the ring and to each other,
// and are then written to it. T may be larger than W. Returns their context.
Matrix attend_and_append(Ring& ring,
                         const Matrix& queries,  // (T, D)
                         const Matrix& keys,     // (T, D)
                         const Matrix& values);  // (T, D) -> (T, D)

}  // namespace exercise
