#include "chapters/05_gqa/attention.hpp"

#include <cmath>

namespace llm {
namespace {

// The one loop of multi-head and grouped-query attention: query head h reads key/value head
// h / G of its sequence.
Attention attend(const Tensor4& queries, const Tensor4& keys, const Tensor4& values,
                 const Tensor4& mask, std::size_t heads_per_kv_head) {
    require(keys.shape() == values.shape(), "attention: keys of {} do not fit values of {}",
            keys.shape(), values.shape());
    const auto [batch_size, num_heads, query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(2);
    require(mask.shape() == std::array{batch_size, std::size_t{1}, query_len, kv_len},
            "attention: a mask of {} does not fit queries of {} and keys of {}", mask.shape(),
            queries.shape(), keys.shape());

    Attention result{xt::zeros<Real>({batch_size, num_heads, query_len, kv_len}),
                     xt::zeros<Real>({batch_size, num_heads, query_len, head_dim})};
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const HeadAttention head =
                attention(head_of(queries, b, h), head_of(keys, b, h / heads_per_kv_head),
                          head_of(values, b, h / heads_per_kv_head), head_of(mask, b, 0));
            xt::view(result.weights, b, h) = head.weights;
            xt::view(result.context, b, h) = head.context;
        }
    return result;
}

}  // namespace

Matrix head_of(const Tensor4& states, std::size_t b, std::size_t h) {
    return xt::view(states, b, h);
}

Matrix attention_scores(const Matrix& queries, const Matrix& keys) {
    const std::size_t head_dim = queries.shape(1);
    require(keys.shape(1) == head_dim, "attention: queries of {} do not fit keys of {}",
            queries.shape(), keys.shape());

    // 1. How well does each query fit each key? Their dot product says so.
    const Matrix products = xt::linalg::dot(queries, xt::transpose(keys));  // (T, S)

    // 2. A sum of D products grows like √D. Divide, or the softmax sees nothing but the best.
    return products / std::sqrt(static_cast<Real>(head_dim));  // (T, S)
}

HeadAttention attention(const Matrix& queries, const Matrix& keys, const Matrix& values,
                        const Matrix& mask) {
    require(keys.shape() == values.shape(), "attention: keys of {} do not fit values of {}",
            keys.shape(), values.shape());
    const Matrix scores = attention_scores(queries, keys);  // (T, S)
    require(mask.shape() == scores.shape(), "attention: a mask of {} does not fit scores of {}",
            mask.shape(), scores.shape());

    // 3. Hide what must not be seen. 4. Turn each row into weights. 5. Take by weight.
    const Matrix masked_scores = scores + mask;               // (T, S)
    const Matrix weights = softmax(masked_scores);            // (T, S)
    const Matrix context = xt::linalg::dot(weights, values);  // (T, D)
    return {weights, context};
}

Attention multi_head_attention(const Tensor4& queries, const Tensor4& keys,
                               const Tensor4& values, const Tensor4& mask) {
    require(keys.shape(0) == queries.shape(0) && keys.shape(1) == queries.shape(1),
            "attention: queries of {} do not fit keys of {}", queries.shape(), keys.shape());
    return attend(queries, keys, values, mask, 1);
}

Attention grouped_query_attention(const Tensor4& queries, const Tensor4& keys,
                                  const Tensor4& values, const Tensor4& mask) {
    const std::size_t num_heads = queries.shape(1), num_kv_heads = keys.shape(1);
    require(
        keys.shape(0) == queries.shape(0) && num_kv_heads > 0 && num_heads % num_kv_heads == 0,
        "attention: queries of {} do not fit keys of {}", queries.shape(), keys.shape());
    return attend(queries, keys, values, mask, num_heads / num_kv_heads);
}

Tensor4 repeat_kv(const Tensor4& states, std::size_t num_key_value_groups) {
    return xt::repeat(states, num_key_value_groups, 1);  // (B, H, S, D)
}

Matrix rms_normalize(const Matrix& rows, Real eps) {
    const auto [count, width] = dims(rows);
    Matrix normalized = rows;  // (N, D)
    for (std::size_t n = 0; n < count; ++n) {
        Real sum_of_squares = 0;
        for (std::size_t d = 0; d < width; ++d) sum_of_squares += rows(n, d) * rows(n, d);

        // The root of the mean square; eps keeps a row of zeros from 0 / 0.
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(width) + eps);
        for (std::size_t d = 0; d < width; ++d) normalized(n, d) = rows(n, d) / rms;
    }
    return normalized;
}

Tensor4 rms_normalize(const Tensor4& states, Real eps) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    const Matrix rows = reshape(states, {batch_size * num_heads * seq_len, head_dim});
    return reshape(rms_normalize(rows, eps), {batch_size, num_heads, seq_len, head_dim});
}

Tensor4 dropout(const Tensor4& weights, Real probability, Generator& generator) {
    require(probability >= 0 && probability < 1,
            "dropout: the probability must be at least 0 and less than 1");
    Tensor4 kept = weights;  // (B, H, T, S)
    for (Real& weight : kept) {
        const bool drop = generator.next_uniform() < probability;
        weight = drop ? 0 : weight / (1 - probability);
    }
    return kept;
}

Tensor4 AttentionLayer::placed(const Tensor4& heads, const std::optional<Vector>& norm,
                               const RotaryTable& table, const IdMatrix& positions) const {
    if (!config.use_qk_norm) return rotate_split_half(heads, table, positions);
    if (!norm) {  // Llama 4
        return rms_normalize(rotate_split_half(heads, table, positions), config.rms_norm_eps);
    }
    require(norm->size() == heads.shape(3),
            "attention: norm weights of {} do not fit heads of {}", norm->shape(),
            heads.shape());
    const Tensor4 weight = reshape(*norm, {1, 1, 1, norm->size()});
    const Tensor4 normalized = rms_normalize(heads, config.rms_norm_eps) * weight;
    return rotate_split_half(normalized, table, positions);  // Qwen3
}

Tensor3 AttentionLayer::operator()(const Tensor3& hidden_states, const RotaryTable& table,
                                   const IdMatrix& positions, const Tensor4& mask) const {
    const std::size_t num_heads = config.num_attention_heads;
    const std::size_t num_kv_heads = config.num_key_value_heads;
    require(q_norm.has_value() == k_norm.has_value() && (config.use_qk_norm || !q_norm),
            "attention: norm weights for queries and keys come together, and with use_qk_norm");

    // Project and split into heads.
    const Tensor4 queries = split_heads(projections.q_proj(hidden_states), num_heads);
    const Tensor4 keys = split_heads(projections.k_proj(hidden_states), num_kv_heads);
    const Tensor4 values = split_heads(projections.v_proj(hidden_states), num_kv_heads);

    // Say where queries and keys stand; let them meet.
    const Tensor4 placed_queries = placed(queries, q_norm, table, positions);  // (B, H, T, D)
    const Tensor4 placed_keys = placed(keys, k_norm, table, positions);        // (B, Hkv, T, D)
    const Attention result = grouped_query_attention(placed_queries, placed_keys, values, mask);

    // Lay the heads side by side and mix them.
    return projections.o_proj(merge_heads(result.context));  // (B, T, C)
}

std::size_t kv_cache_bytes_per_token(std::size_t num_hidden_layers,
                                     std::size_t num_key_value_heads, std::size_t head_dim,
                                     std::size_t bytes_per_number) {
    return 2 * num_hidden_layers * num_key_value_heads * head_dim * bytes_per_number;
}

}  // namespace llm
