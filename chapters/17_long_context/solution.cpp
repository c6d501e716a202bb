#include <algorithm>
#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/17_long_context/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 17.1 — a window of W contains the query's own token, so key t - W is masked, too:
// the loop must include it. With W + 1 keys, short prompts cannot show the mistake.
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window) {
    Matrix mask = causal_mask(seq_len, seq_len);  // (T, T)
    for (std::size_t t = window; t < seq_len; ++t)
        for (std::size_t s = 0; s <= t - window; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 17.2 — the position is the number of tokens so far, not the number of cached ones:
// a full rolling cache always holds W, and all later tokens would get the same position.
Tensor4 decode_step(const QueriesKeysValues& projected, const RotaryTable& rotary_table,
                    RollingCache& cache) {
    const PatternAttentionInputs inputs =
        pattern_attention_inputs({rotary_table}, 1, cache.seq_len);
    const IdMatrix position_ids = repeat_ids(inputs.position_ids, 1);  // (1, 1)
    const Tensor4 queries =
        apply_rotary_embedding(projected.queries, rotary_table, position_ids);
    const Tensor4 keys = apply_rotary_embedding(projected.keys, rotary_table, position_ids);

    cache.update(keys, projected.values);
    const Tensor4 mask = xt::zeros<Real>(
        {std::size_t{1}, std::size_t{1}, std::size_t{1}, cache.keys.shape(2)});  // (1, 1, 1, S)
    return grouped_query_attention(queries, cache.keys, cache.values, mask).context;
}

// Exercise 17.3 — the sink is a logit of its own: 1/√D scales the dot products only.
Matrix attention_with_sink(const Matrix& queries, const Matrix& keys, const Matrix& values,
                           const Matrix& mask, Real sink) {
    const auto [query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(0);
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));
    Matrix logits(std::array{query_len, kv_len + 1});  // (T, S + 1)
    xt::view(logits, xt::all(), xt::range(std::size_t{0}, kv_len)) =
        matmul_transposed(queries, keys) * scale + mask;
    xt::view(logits, xt::all(), kv_len) = sink;
    const Matrix all_weights = softmax(logits);  // (T, S + 1)
    const Matrix weights = xt::view(all_weights, xt::all(), xt::range(std::size_t{0}, kv_len));
    return matmul(weights, values);
}

// Exercise 17.4 — query t attends to at most W adjacent keys. Their rows are contiguous, so
// that one row of scores suffices, and no mask is needed.
Matrix windowed_attention(const Matrix& queries, const Matrix& keys, const Matrix& values,
                          std::size_t window) {
    require(window > 0, "windowed_attention: a window needs at least 1 token");
    const auto [seq_len, head_dim] = dims(queries);
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));
    Matrix context = xt::zeros<Real>({seq_len, head_dim});  // (T, D)
    for (std::size_t t = 0; t < seq_len; ++t) {
        const std::size_t first = t + 1 - std::min(window, t + 1);
        Matrix scores = xt::zeros<Real>({std::size_t{1}, t + 1 - first});  // at most W
        for (std::size_t s = first; s <= t; ++s)
            for (std::size_t d = 0; d < head_dim; ++d)
                scores(0, s - first) += queries(t, d) * keys(s, d) * scale;
        const Matrix weights = softmax(scores);
        for (std::size_t s = first; s <= t; ++s)
            for (std::size_t d = 0; d < head_dim; ++d)
                context(t, d) += weights(0, s - first) * values(s, d);
    }
    return context;
}

// Exercise 17.5 — pairs that make many rotations in the original context have shown every angle
// in training and stay; pairs that make less than one reach new angles unless their frequency
// is divided.
Vector ntk_by_parts(const Vector& inverse_frequencies, Real factor,
                    Real original_max_position_embeddings, Real beta_slow, Real beta_fast) {
    Vector frequencies = inverse_frequencies;  // (D/2)
    for (Real& frequency : frequencies) {
        const Real rotations =
            original_max_position_embeddings * frequency / (2 * std::numbers::pi_v<Real>);
        const Real ramp =
            std::clamp((rotations - beta_slow) / (beta_fast - beta_slow), Real(0), Real(1));
        frequency = (1 - ramp) * frequency / factor + ramp * frequency;
    }
    return frequencies;
}

// Exercise 17.6 — W - 1 in one layer, L (W - 1) in L layers.
Vector predicted_reach() { return {4095, 131040}; }

// Exercise 17.7 — 6 · 10,000; 6 · 512; 5 · 512 + 10,000.
Vector predicted_cached_tokens() { return {60000, 3072, 12560}; }

// Exercise 17.8 — e⁰ = 1 for each key and 2 for the sink: 1 / (1 + 1 + 2).
Vector predicted_weights() { return {0.25f, 0.5f}; }

// Exercise 17.9 — one token at a time, in order: its key is written first, over that of the
// token W positions before, which no query needs anymore. After it, the ring has exactly the
// keys of its window, in an order that does not matter to a softmax.
Matrix attend_and_append(Ring& ring, const Matrix& queries, const Matrix& keys,
                         const Matrix& values) {
    const std::size_t window = ring.keys.shape(0), head_dim = ring.keys.shape(1);
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));
    Matrix context = xt::zeros<Real>(queries.shape());  // (T, D)
    for (std::size_t t = 0; t < queries.shape(0); ++t) {
        const std::size_t entry = ring.seq_len++ % window;
        xt::view(ring.keys, entry, xt::all()) = xt::view(keys, t, xt::all());
        xt::view(ring.values, entry, xt::all()) = xt::view(values, t, xt::all());

        const std::size_t num_keys = std::min(window, ring.seq_len);
        Matrix scores(std::array{std::size_t{1}, num_keys});  // (1, S)
        for (std::size_t s = 0; s < num_keys; ++s) {
            Real product = 0;
            for (std::size_t d = 0; d < head_dim; ++d)
                product += queries(t, d) * ring.keys(s, d);
            scores(0, s) = product * scale;
        }
        const Matrix weights = softmax(scores);
        for (std::size_t s = 0; s < num_keys; ++s)
            for (std::size_t d = 0; d < head_dim; ++d)
                context(t, d) += weights(0, s) * ring.values(s, d);
    }
    return context;
}

}  // namespace exercise
