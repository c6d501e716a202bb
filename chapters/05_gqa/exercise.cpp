#include "chapters/05_gqa/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 5.1 — predict: the context of the query (2, 0, 1, 0). Its keys are (ln 4, 7, 0, 0),
// (0, 3, 0, 8) and (ln 9, 0, 0, 1), their values (10, 0, 5, 0), (0, 10, 5, 0) and (0, 0, 9, 9).
// The third key is in the future. Two decimals.
Vector predicted_context() {
    TODO("predicted_context");
    // return {?, ?, ?, ?};
}

// Exercise 5.2 — predict: D = 100. All features are independent and have mean 0; those of the
// queries have a standard deviation of 3, those of the keys one of 2. What is the standard
// deviation of the scores, after the division by √D? A tolerance of 5 % is allowed.
double predicted_standard_deviation() {
    TODO("predicted_standard_deviation");
    // return ?;
}

// Exercise 5.3 — predict: a model has 32 query heads and 8 key/value heads. Which key/value
// heads do its query heads 0, 3, 4, 13, 24 and 31 use?
Vector predicted_kv_heads() {
    TODO("predicted_kv_heads");
    // return {?, ?, ?, ?, ?, ?};
}

// Exercise 5.4 — predict: Qwen2-0.5B has 24 layers, 14 query heads, 2 key/value heads and a
// head_dim of 64. How many MiB (2^20 bytes) does its KV cache take for 32,768 tokens, with
// elements of 2 bytes? And how many if each query head had a key/value head of its own?
Vector predicted_cache_mib() {
    TODO("predicted_cache_mib");
    // return {?, ?};
}

// Exercise 5.5 — find the bug. With these attention weights, the training loss falls to nearly
// 0 within minutes, and the generated text is nonsense.
Matrix training_weights(const Matrix& queries, const Matrix& keys) {
    const auto [seq_len, head_dim] = dims(queries);
    const Matrix products = xt::linalg::dot(queries, xt::transpose(keys));
    Matrix scores = products / std::sqrt(static_cast<Real>(head_dim));
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = t + 2; s < seq_len; ++s) scores(t, s) = -infinity;
    return softmax(scores);
}

// Exercise 5.6 — find the bug. The context of the last token of a sequence is right; that of
// the first tokens is too small.
Matrix masked_weights(const Matrix& scores, const Matrix& mask) {
    const Matrix allowed = xt::exp(mask);  // 1 or 0
    const Matrix weights = softmax(scores);
    return weights * allowed;
}

// Exercise 5.7 — find the bug. The result is right with one key/value head, and with as many as
// query heads. With 4 query heads and 2 key/value heads, heads 0 and 3 are right.
Tensor4 context_by_kv_head(const Tensor4& queries, const Tensor4& keys, const Tensor4& values,
                           const Tensor4& mask) {
    const std::size_t num_kv_heads = keys.shape(1);
    const std::size_t num_key_value_groups = queries.shape(1) / num_kv_heads;  // G
    Tensor4 context = queries;  // every head is overwritten below
    for (std::size_t b = 0; b < queries.shape(0); ++b)
        for (std::size_t kv_head = 0; kv_head < num_kv_heads; ++kv_head)
            for (std::size_t g = 0; g < num_key_value_groups; ++g) {
                const std::size_t h = g * num_kv_heads + kv_head;
                const HeadAttentionOutput head =
                    attention(head_of(queries, b, h), head_of(keys, b, kv_head),
                              head_of(values, b, kv_head), head_of(mask, b, 0));
                xt::view(context, b, h) = head.context;
            }
    return context;
}

// Exercise 5.8 — write grouped_scores without repeating a key: one matrix product for each
// sequence and key/value head. Divide by √D.
Tensor4 grouped_scores([[maybe_unused]] const Tensor4& queries,
                       [[maybe_unused]] const Tensor4& keys) {
    TODO("grouped_scores");
}

// Attention from an empty file: exercises 5.9 to 5.12. Use loops, std::exp and std::sqrt, and
// no function of chapters 01 to 05. Each step may call those before it.

// Exercise 5.9 — write dot_product_scores: element (t, s) is the dot product of query t and key
// s, divided by √D.
Matrix dot_product_scores([[maybe_unused]] const Matrix& queries,
                          [[maybe_unused]] const Matrix& keys) {
    TODO("dot_product_scores");
}

// Exercise 5.10 — write causal_weights: the softmax of each row over the keys that are not in
// the future of its query; the weights of all other keys are 0. The T queries have the last T
// of S positions. Scores may be as large as 10,000.
Matrix causal_weights([[maybe_unused]] const Matrix& scores) { TODO("causal_weights"); }

// Exercise 5.11 — write head_context: the causal attention of query head h of sequence b. The
// heads of a token are next to each other in the last axis, as the projections return them.
Matrix head_context([[maybe_unused]] const Tensor3& queries,
                    [[maybe_unused]] const Tensor3& keys,
                    [[maybe_unused]] const Tensor3& values,
                    [[maybe_unused]] const HeadSizes& sizes, [[maybe_unused]] std::size_t b,
                    [[maybe_unused]] std::size_t h) {
    TODO("head_context");
}

// Exercise 5.12 — write attention_from_projections: the contexts of all heads of all sequences,
// concatenated for each token, as o_proj expects them. Throw a ValueError (with require) if H
// is not a multiple of Hkv, or if the last axes are not H*D and Hkv*D long.
Tensor3 attention_from_projections([[maybe_unused]] const Tensor3& queries,
                                   [[maybe_unused]] const Tensor3& keys,
                                   [[maybe_unused]] const Tensor3& values,
                                   [[maybe_unused]] const HeadSizes& sizes) {
    TODO("attention_from_projections");
}

}  // namespace exercise
