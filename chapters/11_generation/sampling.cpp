#include "chapters/11_generation/sampling.hpp"

#include <stdexcept>

#include "common/tensors/argsort.hpp"

namespace llm {
namespace {

// A softmax needs at least one finite logit, and neither +inf nor NaN.
void check_logits(const Vector& logits) {
    bool all_below_infinity = true, any_finite = false;
    for (const Real logit : logits) {
        all_below_infinity &= logit < infinity;  // false for NaN, too
        any_finite |= logit > -infinity;
    }
    require(all_below_infinity, "sampling: a logit is +inf or NaN");
    require(any_finite, "sampling: all logits are -inf");
}

}  // namespace

Vector softmax(const Vector& logits) {
    return reshape(softmax(reshape(logits, {1, logits.size()})), {logits.size()});
}

Vector apply_temperature(const Vector& logits, Real temperature) {
    require(temperature > 0, "sampling: the temperature must be above 0");
    return logits / temperature;
}

Vector apply_top_k(const Vector& logits, std::size_t top_k) {
    require(top_k > 0, "sampling: top-k must be at least 1");
    const std::vector<std::size_t> tokens = argsort_descending(logits);
    Vector filtered = logits;
    for (std::size_t rank = top_k; rank < tokens.size(); ++rank)
        filtered(tokens[rank]) = -infinity;
    return filtered;
}

Vector apply_top_p(const Vector& logits, Real top_p) {
    require(top_p >= 0 && top_p <= 1, "sampling: top-p must be from 0 to 1");
    const Vector probabilities = softmax(logits);
    Vector filtered = logits;
    double cumulative = 0;  // the probability of all tokens before this one
    for (const std::size_t token : argsort_descending(logits)) {
        // Remove the token if the ones before it already reach top_p. The first one stays.
        if (cumulative > 0 && cumulative >= top_p) filtered(token) = -infinity;
        cumulative += probabilities(token);
    }
    return filtered;
}

Vector apply_min_p(const Vector& logits, Real min_p) {
    require(min_p >= 0 && min_p <= 1, "sampling: min-p must be from 0 to 1");
    const Vector probabilities = softmax(logits);
    const Real highest = *std::max_element(probabilities.begin(), probabilities.end());
    Vector filtered = logits;
    for (std::size_t token = 0; token < filtered.size(); ++token)
        if (probabilities(token) < min_p * highest) filtered(token) = -infinity;
    return filtered;
}

Vector apply_repetition_penalty(const Vector& logits, const std::vector<Id>& input_ids,
                                Real penalty) {
    require(penalty > 0, "sampling: the repetition penalty must be above 0");
    Vector penalized = logits;
    for (const Id id : input_ids) {
        const auto token = static_cast<std::size_t>(id);
        require(id >= 0 && token < logits.size(),
                "sampling: there is no token {} in a vocabulary of {}", id, logits.size());
        // Start from the original logit: a token that occurs twice is penalized once.
        const Real logit = logits(token);
        penalized(token) = logit > 0 ? logit / penalty : logit * penalty;
    }
    return penalized;
}

Id argmax_token(const Vector& logits) {
    check_logits(logits);
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

Id sample_from(const Vector& probabilities, Generator& generator) {
    // Return the first token at which the cumulative distribution exceeds a uniform random
    // number.
    const double coin = generator.next_uniform();  // in [0, 1)
    double cdf = 0;
    Id id = 0;
    for (std::size_t token = 0; token < probabilities.size(); ++token) {
        if (probabilities(token) == 0) continue;
        id = static_cast<Id>(token);
        cdf += probabilities(token);
        if (coin < cdf) return id;
    }
    require(cdf > 0, "sampling: all probabilities are 0");
    return id;  // rounding errors: the probabilities add up to slightly less than 1
}

Id sample(const Vector& logits, Generator& generator) {
    check_logits(logits);
    return sample_from(softmax(logits), generator);
}

Vector process_logits(const Vector& logits, const std::vector<Id>& input_ids,
                      const SamplingConfig& config) {
    check_logits(logits);  // a filter would hide NaN
    Vector scores = apply_repetition_penalty(logits, input_ids, config.repetition_penalty);
    if (config.temperature == 0) return scores;
    scores = apply_temperature(scores, config.temperature);
    if (config.top_k > 0) scores = apply_top_k(scores, config.top_k);
    if (config.top_p < 1) scores = apply_top_p(scores, config.top_p);
    if (config.min_p > 0) scores = apply_min_p(scores, config.min_p);
    return scores;
}

Id sample_next_token(const Vector& logits, const std::vector<Id>& input_ids,
                     const SamplingConfig& config, Generator& generator) {
    const Vector scores = process_logits(logits, input_ids, config);
    return config.temperature == 0 ? argmax_token(scores) : sample(scores, generator);
}

}  // namespace llm
