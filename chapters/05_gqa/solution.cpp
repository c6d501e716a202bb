#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/exercise.hpp"

namespace exercise {

// Exercise 5.1 — divide by √D, the standard deviation of a sum of D products.
Matrix scaled_scores(const Matrix& queries, const Matrix& keys) {
    const Matrix products = xt::linalg::dot(queries, xt::transpose(keys));
    return products / std::sqrt(static_cast<Real>(queries.shape(1)));
}

// Exercise 5.2 — add the mask to the scores, before the softmax.
Matrix masked_weights(const Matrix& scores, const Matrix& mask) {
    return softmax(scores + mask);
}

// Exercise 5.3 — each row belongs to a query, and its weights over the keys sum to 1.
Matrix weights_over_keys(const Matrix& scores) { return softmax(scores); }

// Exercise 5.4 — adjacent query heads share: head h uses h / G. h % Hkv would tile.
Tensor4 repeat_kv_heads(const Tensor4& states, std::size_t num_key_value_groups) {
    const auto [batch_size, num_kv_heads, kv_len, head_dim] = dims(states);
    Tensor4 result =
        xt::zeros<Real>({batch_size, num_kv_heads * num_key_value_groups, kv_len, head_dim});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_kv_heads * num_key_value_groups; ++h)
            xt::view(result, b, h) = xt::view(states, b, h / num_key_value_groups);
    return result;
}

// Exercise 5.5 — diagonal 2 lets each token attend to the next one, which it has to predict.
Matrix decoder_mask(std::size_t seq_len) {
    const Matrix ones = xt::ones<Real>({seq_len, seq_len});
    const Matrix all_masked = ones * -infinity;
    return xt::triu(all_masked, 1);
}

// Exercise 5.6 — concatenate the heads of each token first, with merge_heads.
Tensor3 merge_and_project(const Tensor4& context, const Linear& o_proj) {
    return o_proj(merge_heads(context));
}

// Exercise 5.7 — view (B, H, T, D) as (B, Hkv, G*T, D): the order of the elements stays,
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

// Exercise 5.8 — log(exp(x - m) / sum) = x - m - log(sum): no logarithm of a tiny number.
Matrix log_softmax(const Matrix& scores) {
    const Matrix row_max = xt::amax(scores, {1}, xt::keep_dims);
    const Matrix shifted = scores - row_max;
    const Matrix exponentials = xt::exp(shifted);
    const Matrix sums = xt::sum(exponentials, {1}, xt::keep_dims);
    const Matrix log_sums = xt::log(sums);
    return shifted - log_sums;
}

// Exercise 5.9 — only the mask differs; exercise 1.4 computes it.
AttentionOutput sliding_window_attention(const Tensor4& queries, const Tensor4& keys,
                                         const Tensor4& values, std::size_t window) {
    const std::size_t seq_len = queries.shape(2);
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = 0; s + window <= t; ++s) mask(t, s) = -infinity;
    return grouped_query_attention(queries, keys, values, expand_mask(mask, queries.shape(0)));
}

}  // namespace exercise
