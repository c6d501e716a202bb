#include "chapters/11_generation/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 11.1 — query t has position S - T + t: the T queries are the last of S positions.
Matrix causal_mask_with_cache(std::size_t query_len, std::size_t kv_len) {
    Matrix mask = xt::zeros<Real>({query_len, kv_len});
    const std::size_t past_len = kv_len - query_len;
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = past_len + t + 1; s < kv_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 11.2 — the cached tokens have positions 0 to past_len - 1, so the first new token
// has position past_len.
AttentionLayer::Output attention_with_cache(const AttentionLayer& layer,
                                            const Tensor3& hidden_states,
                                            const RotaryTable& rotary_table,
                                            LayerCache& cache) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const std::size_t past_len = cache.keys.shape(2);
    IdMatrix positions = position_ids(batch_size, seq_len);
    for (Id& position : positions) position += static_cast<Id>(past_len);
    const Tensor4 mask = expand_mask(causal_mask(seq_len, past_len + seq_len), batch_size);
    return layer(hidden_states, {rotary_table, positions, mask}, &cache);
}

// Exercise 11.3 — top-p depends on the probabilities, and the temperature changes them, so the
// temperature comes first.
Vector temperature_and_top_p(const Vector& logits, Real temperature, Real top_p) {
    return apply_top_p(apply_temperature(logits, temperature), top_p);
}

// Exercise 11.4 — remove a token if the tokens before it already reach top_p. The most likely
// one has none before it and is always kept. (Here tokens of equal probability are all kept or
// all removed; apply_top_p keeps the first ones.)
Vector top_p_without_sorting(const Vector& logits, Real top_p) {
    const Vector probabilities = softmax(logits);
    Vector filtered = logits;
    for (std::size_t token = 0; token < logits.size(); ++token) {
        Real cumulative = 0;  // the probability of all tokens that are more likely
        for (const Real probability : probabilities)
            if (probability > probabilities(token)) cumulative += probability;
        if (cumulative > 0 && cumulative >= top_p) filtered(token) = -infinity;
    }
    return filtered;
}

// Exercise 11.5 — each sequence needs its own KV cache.
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

// Exercise 11.6 — the softmax divides all exponentials by the same sum, so a ratio of
// probabilities is a difference of logits: e^a / e^b = e^(a - b) >= min_p means
// a >= b + ln(min_p).
Vector min_p_without_softmax(const Vector& logits, Real min_p) {
    const Real lowest = *std::max_element(logits.begin(), logits.end()) + std::log(min_p);
    Vector filtered = logits;
    for (Real& logit : filtered)
        if (logit < lowest) logit = -infinity;
    return filtered;
}

// Exercise 11.7 — the keys are cached after RoPE, so each one is rotated by its own position,
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

}  // namespace exercise
