#include "chapters/11_generation/exercise.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace exercise {

// Exercise 11.1 — temperature 0.5 squares the probabilities: 0.64 / (0.64 + 0.04) = 0.94.
// Temperature 2 takes their square roots, whose ratio is 2: 2 / 3.
Vector predicted_probabilities() { return {0.94f, 0.67f}; }

// Exercise 11.2 — the sums before each token are 0, 0.4, 0.7, 0.85 and 0.95: three of them are
// below 0.75, four below 0.9. min-p 0.2 keeps probabilities from 0.2 * 0.4 = 0.08.
Vector predicted_token_counts() { return {2, 3, 4, 4}; }

// Exercise 11.3 — tokens 0 and 2 occur, and each is penalized once: 3 / 1.5 and -1 * 1.5.
Vector predicted_penalized_logits() { return {2, 1.5f, -1.5f, -2}; }

// Exercise 11.4 — the intervals are 0 to 0.1, 0.1 to 0.5, 0.5 to 0.8 and 0.8 to 1.
Vector predicted_ids() { return {1, 2, 0, 2}; }

// Exercise 11.5 — 8 queries and 12 + 8 keys; the cached tokens have the positions 0 to 11.
// Query t must not attend to the 7 - t tokens after it: 7 + 6 + ... + 0 = 28.
Vector predicted_chunk() { return {8, 20, 12, 28}; }

// Exercise 11.6 — top-p depends on the probabilities, and the temperature changes them, so the
// temperature comes first.
Vector temperature_and_top_p(const Vector& logits, Real temperature, Real top_p) {
    return apply_top_p(apply_temperature(logits, temperature), top_p);
}

// Exercise 11.7 — each sequence needs its own KV cache.
std::vector<std::vector<Id>> generate_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t max_new_tokens) {
    std::vector<std::vector<Id>> outputs;
    for (const std::vector<Id>& prompt : prompts) {
        KVCache cache = make_cache(model, model.config.max_position_embeddings);
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

// Exercise 11.8 — the keys are cached after RoPE, so each one is rotated by its own position,
// and the result of attention does not depend on the order of the keys.
void append(RollingCache& cache, const Tensor4& key, const Tensor4& value) {
    const std::size_t slot = cache.num_seen % cache.keys.shape(2);
    xt::view(cache.keys, xt::all(), xt::all(), slot) = xt::view(key, xt::all(), xt::all(), 0);
    xt::view(cache.values, xt::all(), xt::all(), slot) =
        xt::view(value, xt::all(), xt::all(), 0);
    ++cache.num_seen;
}
LayerCache window(const RollingCache& cache) {
    const std::size_t filled = std::min(cache.num_seen, cache.keys.shape(2));
    return {xt::view(cache.keys, xt::all(), xt::all(), xt::range(0, filled)),
            xt::view(cache.values, xt::all(), xt::all(), xt::range(0, filled))};
}

// The probabilities. Subtracting the largest logit avoids an overflow.
std::vector<double> probabilities_of(const Vector& logits) {
    const double highest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> probabilities;
    double sum = 0;
    for (const Real logit : logits) {
        probabilities.push_back(std::exp(double(logit) - highest));
        sum += probabilities.back();
    }
    for (double& probability : probabilities) probability /= sum;
    return probabilities;
}

// Exercise 11.9 — 0 ln 0 is NaN, so tokens with probability 0 are left out.
double entropy(const Vector& logits) {
    double sum = 0;
    for (const double probability : probabilities_of(logits))
        if (probability > 0) sum -= probability * std::log(probability);
    return sum;
}

// All ids, the one with the largest value first; of equal ones the smaller id first.
template <typename Values>
std::vector<std::size_t> by_value(const Values& values) {
    std::vector<std::size_t> ids(values.size());
    std::iota(ids.begin(), ids.end(), std::size_t{0});
    std::stable_sort(ids.begin(), ids.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return ids;
}

// Exercise 11.10 — remove all ids after the first k of the sorted ones.
Vector keep_top_k(const Vector& logits, std::size_t top_k) {
    Vector filtered = logits;
    const std::vector<std::size_t> ids = by_value(logits);
    for (std::size_t rank = top_k; rank < ids.size(); ++rank) filtered(ids[rank]) = -infinity;
    return filtered;
}

// Exercise 11.11 — a token is removed if the probabilities before it, in the order of their
// distance from the entropy, already add up to typical_p. Tokens with probability 0 have an
// infinite distance.
Vector keep_typical(const Vector& logits, Real typical_p) {
    const std::vector<double> probabilities = probabilities_of(logits);
    const double mean = entropy(logits);
    std::vector<double> closeness;
    for (const double probability : probabilities)
        closeness.push_back(-std::abs(-std::log(probability) - mean));
    Vector filtered = logits;
    double before = 0;
    for (const std::size_t id : by_value(closeness)) {
        if (typical_p < 1 && before > 0 && before >= double(typical_p))
            filtered(id) = -infinity;
        before += probabilities[id];
    }
    return filtered;
}

// Exercise 11.12 — the softmax divides all exponentials by the same sum, so a ratio of
// probabilities is a difference of logits: e^a / e^b = e^(a - b) >= min_p means
// a >= b + ln(min_p).
Vector keep_min_p(const Vector& logits, Real min_p) {
    const Real lowest = *std::max_element(logits.begin(), logits.end()) + std::log(min_p);
    Vector filtered = logits;
    for (Real& logit : filtered)
        if (logit < lowest) logit = -infinity;
    return filtered;
}

// Exercise 11.13 — compute from the original logit, so that a token that occurs twice is
// penalized once.
Vector penalize(const Vector& logits, const std::vector<Id>& input_ids, Real penalty) {
    Vector penalized = logits;
    for (const Id id : input_ids) {
        const auto token = static_cast<std::size_t>(id);
        const Real logit = logits(token);
        penalized(token) = logit > 0 ? logit / penalty : logit * penalty;
    }
    return penalized;
}

// Exercise 11.14 — the first token at which the running sum exceeds the random number. If
// rounding keeps the sum below it, the last token that is possible.
Id id_at(const Vector& logits, double coin) {
    const std::vector<double> probabilities = probabilities_of(logits);
    double end = 0;
    Id last = 0;
    for (std::size_t token = 0; token < probabilities.size(); ++token) {
        if (probabilities[token] == 0) continue;
        last = static_cast<Id>(token);
        end += probabilities[token];
        if (coin < end) break;
    }
    return last;
}

// Exercise 11.15 — greedy decoding needs the penalty, but no random number. The filters see the
// probabilities at temperature 1.
Id choose_next_token(const Vector& logits, const std::vector<Id>& input_ids,
                     const TypicalSampling& config, Generator& generator) {
    Vector scores = penalize(logits, input_ids, config.repetition_penalty);
    if (config.temperature == 0) return static_cast<Id>(by_value(scores)[0]);
    if (config.top_k > 0) scores = keep_top_k(scores, config.top_k);
    scores = keep_typical(scores, config.typical_p);
    scores = keep_min_p(scores, config.min_p);
    scores = scores / config.temperature;
    return id_at(scores, double(generator.next_uniform()));
}

}  // namespace exercise
