#include "chapters/11_generation/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 10.1 — query t is the last but T - 1 - t of S tokens: it stands at S - T + t.
Matrix mask_behind(std::size_t query_len, std::size_t kv_len) {
    Matrix mask = xt::zeros<Real>({query_len, kv_len});
    const std::size_t behind = kv_len - query_len;
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = behind + t + 1; s < kv_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 10.2 — the new tokens stand behind those of the cache.
Attention attend_behind(const AttentionLayer& layer, const Tensor3& hidden_states,
                        const RotaryTable& table, LayerCache& cache) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const std::size_t behind = cache.keys.shape(2);
    IdMatrix positions = position_ids(batch_size, seq_len);
    for (Id& position : positions) position += static_cast<Id>(behind);
    const Tensor4 mask = expand_mask(causal_mask(seq_len, behind + seq_len), batch_size);
    return attend(layer, hidden_states, {table, positions, mask}, cache);
}

// Exercise 10.3 — first the temperature, which says how likely each is; then the cut.
Vector hot_nucleus(const Vector& logits, Real temperature, Real top_p) {
    return keep_top_p(with_temperature(logits, temperature), top_p);
}

// Exercise 10.4 — a token is one too many if those before it have reached p. The likeliest has
// none before it, whatever p is. (Equal ones stay or go together here; keep_top_p keeps the
// first.)
Vector nucleus(const Vector& logits, Real top_p) {
    const std::size_t vocab_size = logits.size();
    const Vector probabilities =
        reshape(softmax(reshape(logits, {1, vocab_size})), {vocab_size});
    Vector kept = logits;
    for (std::size_t token = 0; token < vocab_size; ++token) {
        Real reached = 0;  // by all that are likelier
        for (std::size_t other = 0; other < vocab_size; ++other)
            if (probabilities(other) > probabilities(token)) reached += probabilities(other);
        if (reached > 0 && reached >= top_p) kept(token) = -infinity;
    }
    return kept;
}

// Exercise 10.5 — every text has a cache of its own.
std::vector<std::vector<Id>> continue_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t count) {
    std::vector<std::vector<Id>> texts;
    for (const std::vector<Id>& prompt : prompts) {
        KvCache cache = make_cache(model, model.config.max_position_embeddings);
        IdMatrix new_ids(std::array{std::size_t{1}, prompt.size()});
        std::copy(prompt.begin(), prompt.end(), new_ids.begin());
        std::vector<Id> text;
        while (text.size() < count) {
            const Matrix logits = next_logits(model, new_ids, cache);
            text.push_back(likeliest(reshape(logits, {logits.size()})));
            new_ids = IdMatrix{{text.back()}};
        }
        texts.push_back(text);
    }
    return texts;
}

// Exercise 10.6 — a softmax divides by the same sum everywhere, so a ratio of probabilities is
// a difference of logits: e^a / e^b = e^(a - b) >= p means a >= b + ln p.
Vector min_p_of_logits(const Vector& logits, Real p) {
    const Real lowest = *std::max_element(logits.begin(), logits.end()) + std::log(p);
    Vector kept = logits;
    for (Real& logit : kept)
        if (logit < lowest) logit = -infinity;
    return kept;
}

// Exercise 10.7 — keys carry their positions with them, rotated, so their order in the cache
// does not matter: attention adds up whatever it finds.
void put(RingCache& ring, const Tensor4& key, const Tensor4& value) {
    const std::size_t slot = ring.seen % ring.keys.shape(2);
    xt::view(ring.keys, xt::all(), xt::all(), slot) = xt::view(key, xt::all(), xt::all(), 0);
    xt::view(ring.values, xt::all(), xt::all(), slot) =
        xt::view(value, xt::all(), xt::all(), 0);
    ++ring.seen;
}
LayerCache window_of(const RingCache& ring) {
    const std::size_t filled = std::min(ring.seen, ring.keys.shape(2));
    return {xt::view(ring.keys, xt::all(), xt::all(), xt::range(0, filled)),
            xt::view(ring.values, xt::all(), xt::all(), xt::range(0, filled))};
}

}  // namespace exercise
