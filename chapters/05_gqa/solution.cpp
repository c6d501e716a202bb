#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/exercise.hpp"

namespace exercise {

// Exercise 5.1 — dot products 2 ln 4, 0 and 2 ln 9; divided by √4: ln 4 and 0, the third is
// masked. The exponentials 4 and 1 give the weights 0.8 and 0.2.
Vector predicted_context() { return {8, 2, 5, 0}; }

// Exercise 5.2 — a product of two features has a standard deviation of 3 * 2 = 6 and a variance
// of 36. The sum of 100 products has a variance of 3600 and a standard deviation of 60; divided
// by √100 it is 6, for every D.
double predicted_standard_deviation() { return 6; }

// Exercise 5.3 — G = 32 / 8 = 4 adjacent query heads share one: h / 4, rounded down.
Vector predicted_kv_heads() { return {0, 0, 1, 3, 6, 7}; }

// Exercise 5.4 — 2 * 24 * 2 * 64 elements of 2 bytes are 12 KiB per token, times 32,768 tokens
// is 384 MiB. With 14 key/value heads it is 7 times as much.
Vector predicted_cache_mib() { return {384, 2688}; }

// Exercise 5.5 — key t + 1 is the token that query t has to predict, so masking starts there.
Matrix training_weights(const Matrix& queries, const Matrix& keys) {
    const auto [seq_len, head_dim] = dims(queries);
    const Matrix products = xt::linalg::dot(queries, xt::transpose(keys));
    Matrix scores = products / std::sqrt(static_cast<Real>(head_dim));
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = t + 1; s < seq_len; ++s) scores(t, s) = -infinity;
    return softmax(scores);
}

// Exercise 5.6 — the softmax shares its sum of 1 among all keys, so the mask must come first.
// The last token has no masked key, so for it the order made no difference.
Matrix masked_weights(const Matrix& scores, const Matrix& mask) {
    const Matrix masked_scores = scores + mask;
    return softmax(masked_scores);
}

// Exercise 5.7 — the heads of a group are adjacent: group k has the heads k*G to k*G + G - 1.
Tensor4 context_by_kv_head(const Tensor4& queries, const Tensor4& keys, const Tensor4& values,
                           const Tensor4& mask) {
    const std::size_t num_kv_heads = keys.shape(1);
    const std::size_t num_key_value_groups = queries.shape(1) / num_kv_heads;  // G
    Tensor4 context = queries;
    for (std::size_t b = 0; b < queries.shape(0); ++b)
        for (std::size_t kv_head = 0; kv_head < num_kv_heads; ++kv_head)
            for (std::size_t g = 0; g < num_key_value_groups; ++g) {
                const std::size_t h = kv_head * num_key_value_groups + g;
                const HeadAttentionOutput head =
                    attention(head_of(queries, b, h), head_of(keys, b, kv_head),
                              head_of(values, b, kv_head), head_of(mask, b, 0));
                xt::view(context, b, h) = head.context;
            }
    return context;
}

// Exercise 5.8 — view (B, H, T, D) as (B, Hkv, G*T, D): the order of the elements stays,
// because the heads of a group are contiguous. Then one matrix product per key/value head.
Tensor4 grouped_scores(const Tensor4& queries, const Tensor4& keys) {
    const auto [batch_size, num_heads, query_len, head_dim] = dims(queries);
    const std::size_t num_kv_heads = keys.shape(1), kv_len = keys.shape(2);
    const std::size_t rows = num_heads / num_kv_heads * query_len;  // G*T
    const Tensor4 by_group = reshape(queries, {batch_size, num_kv_heads, rows, head_dim});
    Tensor4 scores = xt::zeros<Real>({batch_size, num_kv_heads, rows, kv_len});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t k = 0; k < num_kv_heads; ++k)
            xt::view(scores, b, k) =
                attention_scores(xt::view(by_group, b, k), xt::view(keys, b, k));
    return reshape(scores, {batch_size, num_heads, query_len, kv_len});
}

// Exercise 5.9 — three loops: queries, keys, features.
Matrix dot_product_scores(const Matrix& queries, const Matrix& keys) {
    const auto [query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(0);
    const Real divisor = std::sqrt(static_cast<Real>(head_dim));
    Matrix scores = xt::zeros<Real>({query_len, kv_len});  // (T, S)
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s) {
            Real product = 0;
            for (std::size_t d = 0; d < head_dim; ++d) product += queries(t, d) * keys(s, d);
            scores(t, s) = product / divisor;
        }
    return scores;
}

// Exercise 5.10 — query t has position S - T + t and attends to the keys 0 to S - T + t. The
// largest of their scores is subtracted, so that no exponential overflows.
Matrix causal_weights(const Matrix& scores) {
    const auto [query_len, kv_len] = dims(scores);
    const std::size_t past_len = kv_len - query_len;
    Matrix weights = xt::zeros<Real>({query_len, kv_len});  // (T, S)
    for (std::size_t t = 0; t < query_len; ++t) {
        const std::size_t num_keys = past_len + t + 1;
        Real largest = scores(t, 0);
        for (std::size_t s = 1; s < num_keys; ++s) largest = std::max(largest, scores(t, s));

        Real sum = 0;
        for (std::size_t s = 0; s < num_keys; ++s) {
            weights(t, s) = std::exp(scores(t, s) - largest);
            sum += weights(t, s);
        }
        for (std::size_t s = 0; s < num_keys; ++s) weights(t, s) /= sum;
    }
    return weights;
}

// Exercise 5.11 — head h has the columns h*D to h*D + D - 1. Its key/value head is h / G.
Matrix columns_of_head(const Tensor3& states, std::size_t b, std::size_t h,
                       std::size_t head_dim) {
    const std::size_t seq_len = states.shape(1);
    Matrix columns = xt::zeros<Real>({seq_len, head_dim});  // (T, D)
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t d = 0; d < head_dim; ++d)
            columns(t, d) = states(b, t, h * head_dim + d);
    return columns;
}

Matrix head_context(const Tensor3& queries, const Tensor3& keys, const Tensor3& values,
                    const HeadSizes& sizes, std::size_t b, std::size_t h) {
    const auto [num_heads, num_kv_heads, head_dim] = sizes;
    const std::size_t kv_head = h / (num_heads / num_kv_heads);
    const Matrix head_queries = columns_of_head(queries, b, h, head_dim);      // (T, D)
    const Matrix head_keys = columns_of_head(keys, b, kv_head, head_dim);      // (S, D)
    const Matrix head_values = columns_of_head(values, b, kv_head, head_dim);  // (S, D)

    const Matrix weights = causal_weights(dot_product_scores(head_queries, head_keys));
    Matrix context = xt::zeros<Real>({head_queries.shape(0), head_dim});  // (T, D)
    for (std::size_t t = 0; t < weights.shape(0); ++t)
        for (std::size_t s = 0; s < weights.shape(1); ++s)
            for (std::size_t d = 0; d < head_dim; ++d)
                context(t, d) += weights(t, s) * head_values(s, d);
    return context;
}

// Exercise 5.12 — the result has the layout of the queries: head h writes the columns that its
// queries came from.
Tensor3 attention_from_projections(const Tensor3& queries, const Tensor3& keys,
                                   const Tensor3& values, const HeadSizes& sizes) {
    const auto [num_heads, num_kv_heads, head_dim] = sizes;
    require(num_kv_heads > 0 && num_heads % num_kv_heads == 0,
            "attention: {} key/value heads do not divide {} query heads", num_kv_heads,
            num_heads);
    const auto [batch_size, query_len, query_width] = dims(queries);
    require(query_width == num_heads * head_dim, "attention: queries of {} for {} heads of {}",
            queries.shape(), num_heads, head_dim);
    require(keys.shape(2) == num_kv_heads * head_dim && values.shape() == keys.shape(),
            "attention: keys of {} and values of {} for {} heads of {}", keys.shape(),
            values.shape(), num_kv_heads, head_dim);

    Tensor3 merged = xt::zeros<Real>({batch_size, query_len, query_width});  // (B, T, H*D)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const Matrix context = head_context(queries, keys, values, sizes, b, h);
            for (std::size_t t = 0; t < query_len; ++t)
                for (std::size_t d = 0; d < head_dim; ++d)
                    merged(b, t, h * head_dim + d) = context(t, d);
        }
    return merged;
}

}  // namespace exercise
