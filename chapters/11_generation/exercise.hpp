// Chapter 10, exercises. Write your answers into exercise.cpp; ./learn exercise 10 checks them.
#pragma once

#include "chapters/11_generation/generation.hpp"

namespace exercise {

using namespace llm;

Matrix mask_behind(std::size_t query_len, std::size_t kv_len);  // (T, S)

// As attend of the lesson, for T tokens behind the S of the cache.
Attention attend_behind(const AttentionLayer& layer, const Tensor3& hidden_states,  // (B, T, C)
                        const RotaryTable& table, LayerCache& cache);

Vector hot_nucleus(const Vector& logits, Real temperature, Real top_p);  // (V) -> (V)

Vector nucleus(const Vector& logits, Real top_p);  // (V) -> (V)

// The likeliest count tokens behind each of the prompts.
std::vector<std::vector<Id>> continue_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t count);

Vector min_p_of_logits(const Vector& logits, Real p);  // (V) -> (V), 0 <= p <= 1

// The last W tokens, whatever came before, in W slots that are there from the start. Token
// number n lies in slot n % W.
struct RingCache {
    Tensor4 keys, values;  // (B, Hkv, W, D)
    std::size_t seen = 0;  // all tokens so far
};
void put(RingCache& ring, const Tensor4& key, const Tensor4& value);  // (B, Hkv, 1, D) each
LayerCache window_of(const RingCache& ring);  // (B, Hkv, min(W, seen), D), in any order

}  // namespace exercise
