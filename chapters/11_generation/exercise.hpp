// Chapter 11, exercises. Write your answers into exercise.cpp; ./learn exercise 11 checks them.
#pragma once

#include "chapters/11_generation/generation.hpp"

namespace exercise {

using namespace llm;

Vector predicted_probabilities();     // (2)
Vector predicted_token_counts();      // (4)
Vector predicted_penalized_logits();  // (4)
Vector predicted_ids();               // (4)
Vector predicted_chunk();             // (4)

// Temperature and top-p, in Hugging Face's order.
Vector temperature_and_top_p(const Vector& logits, Real temperature, Real top_p);  // (V) -> (V)

// Greedy decoding of several prompts, one after the other: the new tokens of each.
std::vector<std::vector<Id>> generate_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t max_new_tokens);

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

// A sampler from an empty file, with typical sampling instead of top-p, in llama.cpp's order. A
// removed token has a logit of -inf; some logits may be -inf already.
double entropy(const Vector& logits);                        // (V), in nats
Vector keep_top_k(const Vector& logits, std::size_t top_k);  // (V) -> (V)
Vector keep_typical(const Vector& logits, Real typical_p);   // (V) -> (V)
Vector keep_min_p(const Vector& logits, Real min_p);         // (V) -> (V)
Vector penalize(const Vector& logits,                        // (V) -> (V)
                const std::vector<Id>& input_ids,            // T
                Real penalty);

// The id that inverse transform sampling returns for a random number in [0, 1).
Id id_at(const Vector& logits,  // (V)
         double coin);

// The values 0 (top_k, min_p) and 1 (typical_p, penalty) change nothing.
struct TypicalSampling {
    Real temperature = 1;  // 0: greedy decoding
    std::size_t top_k = 0;
    Real typical_p = 1, min_p = 0, repetition_penalty = 1;
};
// The next id. Takes one number from the generator, and none if the temperature is 0.
Id choose_next_token(const Vector& logits,              // (V)
                     const std::vector<Id>& input_ids,  // the T tokens so far
                     const TypicalSampling& config, Generator& generator);

}  // namespace exercise
