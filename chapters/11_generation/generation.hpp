// Chapter 10 — How does a model write?
#pragma once

#include <functional>
#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

IdMatrix one_sequence(std::span<const Id> ids);  // T -> (1, T)
Vector probabilities_of(const Vector& logits);   // softmax, (V) -> (V)

// From logits to a token. Each takes the logits of one position, (V), and returns such logits;
// what must not come gets -inf. Softmax makes probabilities of them in the end.

// Divides by the temperature: below 1 the likely gets likelier. Throws ShapeError unless it is
// above 0. Source: "A Learning Algorithm for Boltzmann Machines" (Ackley et al., 1985).
Vector with_temperature(const Vector& logits, Real temperature);

// Keeps the k likeliest, of equals the first (Hugging Face keeps all that equal the last one).
// Throws ShapeError if k is 0. Source: "Hierarchical Neural Story Generation" (Fan et al.,
// 2018), section 5.4.
Vector keep_top_k(const Vector& logits, std::size_t k);

// Keeps the fewest tokens whose probabilities add up to p: always the first, and the one that
// reaches p. Throws ShapeError unless 0 <= p <= 1. Source: "The Curious Case of Neural Text
// Degeneration" (Holtzman et al., 2020), section 3.1.
Vector keep_top_p(const Vector& logits, Real p);

// Keeps what is at least p times as likely as the likeliest. Throws ShapeError unless
// 0 <= p <= 1. Source: "Turning Up the Heat: Min-p Sampling" (Nguyen et al., 2024), section 3.
Vector keep_min_p(const Vector& logits, Real p);

// Makes what has been seen less likely: a positive logit is divided by the penalty, a negative
// one multiplied. Throws ShapeError unless the penalty is above 0 and each id a token. Source:
// "CTRL" (Keskar et al., 2019), section 4.1; Hugging Face for negative logits.
Vector penalize_repetition(const Vector& logits, const std::vector<Id>& seen, Real penalty);

// The first of the largest. Throws ShapeError if all are -inf, or if one is no number.
Id likeliest(const Vector& logits);

// Softmax, then one token with just that probability. Throws ShapeError as likeliest does.
Id draw(const Vector& logits, Generator& generator);

// All of it, in Hugging Face's order: penalty, temperature, top-k, top-p, min-p, draw.
struct Sampling {
    Real temperature = 1;   // 0: the likeliest, always
    std::size_t top_k = 0;  // 0: all
    Real top_p = 1;         // 1: all
    Real min_p = 0;         // 0: all
    Real repetition_penalty = 1;
};
Id next_token(const Vector& logits, const std::vector<Id>& seen, const Sampling& sampling,
              Generator& generator);

// What a token leaves behind for those that come after it: its keys, rotated, and its values.
struct LayerCache {
    Tensor4 keys, values;  // (B, Hkv, S, D), nothing yet when S = 0
};
struct KvCache {
    RotaryTable table;               // (P, D/2)
    std::vector<LayerCache> layers;  // L
    std::size_t length = 0;          // S: the tokens in it
};
KvCache make_cache(const Model& model, std::size_t num_positions);  // P

// For T tokens behind the S of the cache: positions S to S + T - 1, and a mask of
// (B, 1, T, S + T). T = S and an empty cache give chapter 08's causal_placement. Throws
// ShapeError if they do not fit into P.
Placement placement_behind(const KvCache& cache, std::size_t batch_size, std::size_t seq_len);

// The attention layer of chapter 05 up to its contexts, for the new tokens alone. It puts their
// keys and values into the cache first. Throws ShapeError if the batch has another size.
Attention attend(const AttentionLayer& layer, const Tensor3& hidden_states,  // (B, T, C)
                 const Placement& placement, LayerCache& cache);             // S becomes S + T

// What chapter 08's block does behind that: the heads are mixed and added, then the MLP.
Tensor3 finish_block(const PreNormBlock& block, const Tensor3& stream,  // (B, T, C)
                     const Attention& attention);                       // -> (B, T, C)

// The logits behind the last of the new tokens, which join the cache. Prefill: all tokens of a
// prompt at once. Decode: one token, T = 1. Throws ShapeError, and leaves the cache as it was,
// if an id is no token or the tokens do not fit.
Matrix next_logits(const Model& model, const IdMatrix& new_ids, KvCache& cache);  // (B, V)

// Goes on with a text, token by token, and hands each to on_token as soon as it is there.
// Returns the new ones. Ends after max_new_tokens, at the model's last position, or when one of
// end_ids is drawn, which is not returned. Throws ShapeError if the prompt is empty or too
// long.
struct Writing {
    Sampling sampling;
    std::size_t max_new_tokens = 256;
    std::vector<Id> end_ids;
    bool use_cache = true;  // else every step computes the whole text again
};
std::vector<Id> generate(const Model& model, const std::vector<Id>& prompt,
                         const Writing& writing, Generator& generator,
                         const std::function<void(Id)>& on_token = {});

}  // namespace llm
