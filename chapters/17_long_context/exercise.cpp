#include "chapters/17_long_context/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "common/system/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 17.1 — find the bug. The logits equal the reference for all prompts of up to 128
// tokens. From token 128 on (the first is token 0), they differ in the third decimal.
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window) {
    Matrix mask = causal_mask(seq_len, seq_len);  // (T, T)
    for (std::size_t t = window; t < seq_len; ++t)
        for (std::size_t s = 0; s < t - window; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 17.2 — find the bug. The text is right until the cache is full. From then on, the
// model repeats itself more and more.
Tensor4 decode_step(const QueriesKeysValues& projected, const RotaryTable& rotary_table,
                    RollingCache& cache) {
    // Rotate the query and the key by the position of the new token.
    const PatternAttentionInputs inputs =
        pattern_attention_inputs({rotary_table}, 1, cache.keys.shape(2));
    const IdMatrix position_ids = repeat_ids(inputs.position_ids, 1);  // (1, 1)
    const Tensor4 queries =
        apply_rotary_embedding(projected.queries, rotary_table, position_ids);
    const Tensor4 keys = apply_rotary_embedding(projected.keys, rotary_table, position_ids);

    // The new token may attend to every entry of the updated cache.
    cache.update(keys, projected.values);
    const Tensor4 mask = xt::zeros<Real>(
        {std::size_t{1}, std::size_t{1}, std::size_t{1}, cache.keys.shape(2)});  // (1, 1, 1, S)
    return grouped_query_attention(queries, cache.keys, cache.values, mask).context;
}

// Exercise 17.3 — find the bug. A published model loads and writes fluent text, but its logits
// are off by a few percent, most in heads with a large sink.
Matrix attention_with_sink(const Matrix& queries, const Matrix& keys, const Matrix& values,
                           const Matrix& mask, Real sink) {
    const auto [query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(0);
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));

    // Append the sink as a last column.
    Matrix logits(std::array{query_len, kv_len + 1});  // (T, S + 1)
    xt::view(logits, xt::all(), xt::range(std::size_t{0}, kv_len)) =
        matmul_transposed(queries, keys) + mask;
    xt::view(logits, xt::all(), kv_len) = sink;

    // Drop the sink's column after the softmax.
    const Matrix all_weights = softmax(logits * scale);  // (T, S + 1)
    const Matrix weights = xt::view(all_weights, xt::all(), xt::range(std::size_t{0}, kv_len));
    return matmul(weights, values);
}

// Exercise 17.4 — write windowed_attention from an empty function. A mask computes all T²
// scores and throws most of them away. Compute only those that a query needs: with T = 200,000
// and a window of 8, the matrix of all scores would have 160 GB.
Matrix windowed_attention([[maybe_unused]] const Matrix& queries,
                          [[maybe_unused]] const Matrix& keys,
                          [[maybe_unused]] const Matrix& values,
                          [[maybe_unused]] std::size_t window) {
    TODO("windowed_attention");
}

// Exercise 17.5 — write ntk_by_parts. A pair that makes at most beta_slow rotations in the
// original context is divided by the factor, one that makes at least beta_fast stays, and
// between them the two are blended, linearly in the number of rotations. (The lesson's ramp is
// linear in the index of the pair, as in Hugging Face; this one is the paper's.)
Vector ntk_by_parts([[maybe_unused]] const Vector& inverse_frequencies,
                    [[maybe_unused]] Real factor,
                    [[maybe_unused]] Real original_max_position_embeddings,
                    [[maybe_unused]] Real beta_slow, [[maybe_unused]] Real beta_fast) {
    TODO("ntk_by_parts");
}

// Exercise 17.6 — predict: a model has 32 layers with a window of 4096. How many tokens back
// can a token attend in one layer, and how far back can the input be that its output after all
// layers depends on? (The token itself is 0 tokens back.)
Vector predicted_reach() {
    TODO("predicted_reach");
    // return {?, ?};
}

// Exercise 17.7 — predict: after 10,000 tokens, how many tokens are cached in all six layers
// together, if all have full attention; if all have a window of 512; if five have a window of
// 512 and one has full attention?
Vector predicted_cached_tokens() {
    TODO("predicted_cached_tokens");
    // return {?, ?, ?};
}

// Exercise 17.8 — predict: a query has two keys, both with a score of 0, and a learned sink of
// ln 2. What is the weight of each key, and how much do they sum to?
Vector predicted_weights() {
    TODO("predicted_weights");
    // return {?, ?};
}

// Exercise 17.9 — write attend_and_append from an empty function: a rolling cache that never
// grows and never moves a row.
Matrix attend_and_append([[maybe_unused]] Ring& ring, [[maybe_unused]] const Matrix& queries,
                         [[maybe_unused]] const Matrix& keys,
                         [[maybe_unused]] const Matrix& values) {
    TODO("attend_and_append");
}

}  // namespace exercise
