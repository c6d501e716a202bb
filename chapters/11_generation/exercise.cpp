#include "chapters/11_generation/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 11.1 — find the bug. The mask is right for a whole sequence. With a cache, new
// tokens attend to too few keys.
Matrix causal_mask_with_cache(std::size_t query_len, std::size_t kv_len) {
    Matrix mask = xt::zeros<Real>({query_len, kv_len});
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = t + 1; s < kv_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 11.2 — find the bug. The output for the prompt is right. The outputs for the tokens
// after it are not.
AttentionLayer::Output attention_with_cache(const AttentionLayer& layer,
                                            const Tensor3& hidden_states,
                                            const RotaryTable& rotary_table,
                                            LayerCache& cache) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const std::size_t past_len = cache.keys.shape(2);
    const std::size_t first_position = past_len == 0 ? 0 : past_len - 1;
    IdMatrix positions = position_ids(batch_size, seq_len);
    for (Id& position : positions) position += static_cast<Id>(first_position);
    const Tensor4 mask = expand_mask(causal_mask(seq_len, past_len + seq_len), batch_size);
    return layer(hidden_states, {rotary_table, positions, mask}, &cache);
}

// Exercise 11.3 — find the bug. At temperature 2 the same tokens remain as at temperature 1.
Vector temperature_and_top_p(const Vector& logits, Real temperature, Real top_p) {
    const Vector filtered = apply_top_p(logits, top_p);
    return apply_temperature(filtered, temperature);
}

// Exercise 11.4 — find the bug. One token too few remains. If the probability of the most
// likely token is above top_p, no token remains at all.
Vector top_p_without_sorting(const Vector& logits, Real top_p) {
    const Vector probabilities = softmax(logits);
    Vector filtered = logits;
    for (std::size_t token = 0; token < logits.size(); ++token) {
        Real cumulative = 0;  // the probability of this token and all that are more likely
        for (const Real probability : probabilities)
            if (probability >= probabilities(token)) cumulative += probability;
        if (cumulative > top_p) filtered(token) = -infinity;
    }
    return filtered;
}

// Exercise 11.5 — find the bug. Each prompt is continued correctly when it is the only one. Of
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

// Exercise 11.6 — write min_p_without_softmax. It keeps the tokens that apply_min_p keeps, and
// computes one logarithm instead of V exponentials. Which difference of two logits corresponds
// to a ratio of min_p between the probabilities?
Vector min_p_without_softmax([[maybe_unused]] const Vector& logits,
                             [[maybe_unused]] Real min_p) {
    TODO("min_p_without_softmax");
}

// Exercise 11.7 — write append and window of a cache that never grows. In a model with
// sliding-window attention each token attends to the last W tokens, so a new token may
// overwrite the oldest one.
void append([[maybe_unused]] RollingCache& cache, [[maybe_unused]] const Tensor4& key,
            [[maybe_unused]] const Tensor4& value) {
    TODO("append");
}
LayerCache window([[maybe_unused]] const RollingCache& cache) { TODO("window"); }

}  // namespace exercise
