#include "chapters/11_generation/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 11.1 — predict: two tokens have the probabilities 0.8 and 0.2. What is the
// probability of the first one at temperature 0.5, and at temperature 2?
Vector predicted_probabilities() {
    TODO("predicted_probabilities");
    // return {?, ?};
}

// Exercise 11.2 — predict: five tokens have the probabilities 0.4, 0.3, 0.15, 0.1 and 0.05. How
// many tokens do top-k 2, top-p 0.75, top-p 0.9 and min-p 0.2 keep, each alone?
Vector predicted_token_counts() {
    TODO("predicted_token_counts");
    // return {?, ?, ?, ?};
}

// Exercise 11.3 — predict: four tokens have the logits 3, 1.5, -1 and -2. The text so far is 0,
// 2, 2, 0, 0. What are the logits after a repetition penalty of 1.5?
Vector predicted_penalized_logits() {
    TODO("predicted_penalized_logits");
    // return {?, ?, ?, ?};
}

// Exercise 11.4 — predict: tokens 0 to 3 have the probabilities 0.1, 0.4, 0.3 and 0.2. Which
// token does inverse transform sampling choose for the random numbers 0.3, 0.75, 0.05 and 0.55?
Vector predicted_ids() {
    TODO("predicted_ids");
    // return {?, ?, ?, ?};
}

// Exercise 11.5 — predict: the prefill of a prompt of 20 tokens in two chunks of 12 and 8. For
// the second chunk: the number of queries, the number of keys, the position id of the first
// query, and the number of elements of the mask that are -inf.
Vector predicted_chunk() {
    TODO("predicted_chunk");
    // return {?, ?, ?, ?};
}

// Exercise 11.6 — find the bug. At temperature 2 the same tokens remain as at temperature 1.
Vector temperature_and_top_p(const Vector& logits, Real temperature, Real top_p) {
    const Vector filtered = apply_top_p(logits, top_p);
    return apply_temperature(filtered, temperature);
}

// Exercise 11.7 — find the bug. Each prompt is continued correctly when it is the only one. Of
// several prompts, only the first one is.
std::vector<std::vector<Id>> generate_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t max_new_tokens) {
    KVCache cache = make_cache(model, model.config.max_position_embeddings);
    std::vector<std::vector<Id>> outputs;
    for (const std::vector<Id>& prompt : prompts) {
        IdMatrix new_ids = one_sequence(prompt);
        std::vector<Id> generated;
        while (generated.size() < max_new_tokens) {
            const ModelOutput output = model.forward(new_ids, {.cache = &cache});
            generated.push_back(argmax_token(last_logits(output)));
            new_ids = IdMatrix{{generated.back()}};
        }
        outputs.push_back(generated);
    }
    return outputs;
}

// Exercise 11.8 — write append and window of a cache that never grows. In a model with
// sliding-window attention each token attends to the last W tokens, so a new token may
// overwrite the oldest one.
void append([[maybe_unused]] RollingCache& cache, [[maybe_unused]] const Tensor4& key,
            [[maybe_unused]] const Tensor4& value) {
    TODO("append");
}
LayerCache window([[maybe_unused]] const RollingCache& cache) { TODO("window"); }

// Exercise 11.9 — write entropy: the first step of a sampler from an empty file. The mean of
// -ln p over the distribution, in nats: the sum of -p ln p over all tokens. A removed token
// (-inf) adds 0.
double entropy([[maybe_unused]] const Vector& logits) { TODO("entropy"); }

// Exercise 11.10 — write keep_top_k: keeps the k largest logits, of equal ones those with the
// smaller ids. k is at least 1, and may be larger than V.
Vector keep_top_k([[maybe_unused]] const Vector& logits, [[maybe_unused]] std::size_t top_k) {
    TODO("keep_top_k");
}

// Exercise 11.11 — write keep_typical: sorts the tokens by |-ln p - entropy|, the smallest
// first (of equal ones the smaller id first), and keeps the first ones whose probabilities add
// up to typical_p or more; at least one token, and all possible ones if typical_p is 1.
Vector keep_typical([[maybe_unused]] const Vector& logits, [[maybe_unused]] Real typical_p) {
    TODO("keep_typical");
}

// Exercise 11.12 — write keep_min_p: keeps the tokens whose probability is at least min_p times
// the highest one. 0 <= min_p <= 1. No softmax is needed.
Vector keep_min_p([[maybe_unused]] const Vector& logits, [[maybe_unused]] Real min_p) {
    TODO("keep_min_p");
}

// Exercise 11.13 — write penalize: the repetition penalty, once for each token that occurs in
// input_ids. It must never raise a logit if the penalty is above 1.
Vector penalize([[maybe_unused]] const Vector& logits,
                [[maybe_unused]] const std::vector<Id>& input_ids,
                [[maybe_unused]] Real penalty) {
    TODO("penalize");
}

// Exercise 11.14 — write id_at: inverse transform sampling with a given random number. A token
// with a logit of -inf must never be returned.
Id id_at([[maybe_unused]] const Vector& logits, [[maybe_unused]] double coin) { TODO("id_at"); }

// Exercise 11.15 — write choose_next_token: all steps in llama.cpp's order, the penalty, top-k,
// typical, min-p, and the temperature last. A temperature of 0 is greedy decoding.
Id choose_next_token([[maybe_unused]] const Vector& logits,
                     [[maybe_unused]] const std::vector<Id>& input_ids,
                     [[maybe_unused]] const TypicalSampling& config,
                     [[maybe_unused]] Generator& generator) {
    TODO("choose_next_token");
}

}  // namespace exercise
