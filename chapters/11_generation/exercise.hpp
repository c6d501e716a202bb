// Chapter 11, exercises. Write your answers into exercise.cpp; ./learn exercise 11 checks them.
#pragma once

#include "chapters/11_generation/generation.hpp"

namespace exercise {

using namespace llm;

// The causal mask of the last query_len of kv_len positions.
Matrix causal_mask_with_cache(std::size_t query_len, std::size_t kv_len);  // (T, S)

// The attention layer for T new tokens after the ones in the cache.
AttentionLayer::Output attention_with_cache(const AttentionLayer& layer,
                                            const Tensor3& hidden_states,     // (B, T, C)
                                            const RotaryTable& rotary_table,  // (P, D/2)
                                            LayerCache& cache);

// Temperature and top-p, in Hugging Face's order.
Vector temperature_and_top_p(const Vector& logits, Real temperature, Real top_p);  // (V) -> (V)

// Top-p, written without sorting.
Vector top_p_without_sorting(const Vector& logits, Real top_p);  // (V) -> (V)

// Greedy decoding of several prompts, one after the other: the new tokens of each.
std::vector<std::vector<Id>> generate_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t max_new_tokens);

// Min-p, computed from the logits alone. 0 <= min_p <= 1.
Vector min_p_without_softmax(const Vector& logits, Real min_p);  // (V) -> (V)

// The rolling buffer cache of Mistral 7B (Jiang et al., 2023): a ring buffer of W slots, which
// are allocated once and hold the last W tokens. Token n is in slot n % W.
struct RollingCache {
    Tensor4 keys, values;      // (B, Hkv, W, D)
    std::size_t num_seen = 0;  // the number of tokens appended so far
};
void append(RollingCache& cache,
            const Tensor4& key,     // (B, Hkv, 1, D)
            const Tensor4& value);  // (B, Hkv, 1, D)
// The tokens that are in the cache, in any order: (B, Hkv, min(W, num_seen), D).
LayerCache window(const RollingCache& cache);

}  // namespace exercise
