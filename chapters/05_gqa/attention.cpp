#include "chapters/05_gqa/attention.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// states[b, h] = head. The rows of a head are adjacent in memory.
void set_head(Tensor4& states, std::size_t b, std::size_t h, const Matrix& head) {
    std::copy(head.begin(), head.end(),
              states.data() + (b * states.shape(1) + h) * head.size());
}

// The loop over heads: query head h uses key/value head h / G of its sequence.
AttentionOutput attention_of_all_heads(const Tensor4& queries, const Tensor4& keys,
                                       const Tensor4& values, const Tensor4& mask,
                                       std::size_t num_key_value_groups,
                                       const HeadAttention& head_attention) {
    const auto [batch_size, num_heads, query_len, head_dim] = dims(queries);
    const std::size_t kv_len = keys.shape(2), value_dim = values.shape(3);
    require(values.shape() == std::array{keys.shape(0), keys.shape(1), kv_len, value_dim},
            "attention: keys of {} do not match values of {}", keys.shape(), values.shape());
    require(mask.shape() == std::array{batch_size, std::size_t{1}, query_len, kv_len},
            "attention: a mask of {} does not match queries of {} and keys of {}", mask.shape(),
            queries.shape(), keys.shape());

    AttentionOutput result{Tensor4(std::array{batch_size, num_heads, query_len, kv_len}),
                           Tensor4(std::array{batch_size, num_heads, query_len, value_dim})};
    for (std::size_t b = 0; b < batch_size; ++b) {
        const Matrix sequence_mask = head_of(mask, b, 0);  // (T, S), the same for all heads
        for (std::size_t h = 0; h < num_heads; ++h) {
            const std::size_t kv_head = h / num_key_value_groups;
            const HeadAttentionOutput head =
                head_attention(head_of(queries, b, h), head_of(keys, b, kv_head),
                               head_of(values, b, kv_head), sequence_mask, h);
            set_head(result.weights, b, h, head.weights);
            set_head(result.context, b, h, head.context);
        }
    }
    return result;
}

// RMSNorm over all heads of a token, as one vector of H*D features.
Tensor4 rms_norm_all_heads(const Tensor4& heads, const Vector& weight, Real eps) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    const std::size_t width = num_heads * head_dim;
    const Tensor4 tokens = reshape(merge_heads(heads), {batch_size, 1, seq_len, width});
    const Tensor4 normalized = rms_normalize(tokens, eps) * reshape(weight, {1, 1, 1, width});
    return split_heads(reshape(normalized, {batch_size, seq_len, width}), num_heads);
}

// RMSNorm over head_dim, with the same D weights for each head; or over all heads.
Tensor4 rms_norm_heads(const Tensor4& heads, const Vector& weight, Real eps) {
    if (weight.size() == heads.shape(1) * heads.shape(3))
        return rms_norm_all_heads(heads, weight, eps);
    require(weight.size() == heads.shape(3),
            "attention: norm weights of {} do not match heads of {}", weight.shape(),
            heads.shape());
    return rms_normalize(heads, eps) * reshape(weight, {1, 1, 1, weight.size()});
}

}  // namespace

Matrix head_of(const Tensor4& states, std::size_t b, std::size_t h) {
    Matrix head(std::array{states.shape(2), states.shape(3)});
    const Real* const first = states.data() + (b * states.shape(1) + h) * head.size();
    std::copy(first, first + head.size(), head.data());
    return head;
}

Matrix attention_scores(const Matrix& queries, const Matrix& keys) {
    const std::size_t head_dim = queries.shape(1);
    require(keys.shape(1) == head_dim, "attention: queries of {} do not match keys of {}",
            queries.shape(), keys.shape());

    // 1. Compute the dot product of each query and each key.
    const Matrix products = matmul_transposed(queries, keys);  // (T, S)

    // 2. Divide by √D, because the standard deviation of a sum of D products grows like √D.
    // Otherwise the softmax would give the highest-scoring key nearly all the weight.
    return products / std::sqrt(static_cast<Real>(head_dim));  // (T, S)
}

HeadAttentionOutput attention(const Matrix& queries, const Matrix& keys, const Matrix& values,
                              const Matrix& mask) {
    require(keys.shape(0) == values.shape(0), "attention: keys of {} do not match values of {}",
            keys.shape(), values.shape());
    const Matrix scores = attention_scores(queries, keys);  // (T, S)
    require(mask.shape() == scores.shape(),
            "attention: a mask of {} does not match scores of {}", mask.shape(),
            scores.shape());

    // 3. Add the causal mask. 4. Softmax over the keys. 5. Weighted sum of the values.
    const Matrix masked_scores = scores + mask;  // (T, S)
    Matrix weights = softmax(masked_scores);     // (T, S)
    Matrix context = matmul(weights, values);    // (T, D)
    return {std::move(weights), std::move(context)};
}

HeadAttentionOutput scaled_dot_product_attention(const Matrix& queries, const Matrix& keys,
                                                 const Matrix& values, const Matrix& mask,
                                                 std::size_t /*h*/) {
    return attention(queries, keys, values, mask);
}

AttentionOutput multi_head_attention(const Tensor4& queries, const Tensor4& keys,
                                     const Tensor4& values, const Tensor4& mask) {
    require(keys.shape(0) == queries.shape(0) && keys.shape(1) == queries.shape(1),
            "attention: queries of {} do not match keys of {}", queries.shape(), keys.shape());
    return attention_of_all_heads(queries, keys, values, mask, 1, scaled_dot_product_attention);
}

AttentionOutput grouped_query_attention(const Tensor4& queries, const Tensor4& keys,
                                        const Tensor4& values, const Tensor4& mask,
                                        const HeadAttention& head_attention) {
    const std::size_t num_heads = queries.shape(1), num_kv_heads = keys.shape(1);
    require(
        keys.shape(0) == queries.shape(0) && num_kv_heads > 0 && num_heads % num_kv_heads == 0,
        "attention: queries of {} do not match keys of {}", queries.shape(), keys.shape());
    return attention_of_all_heads(queries, keys, values, mask, num_heads / num_kv_heads,
                                  head_attention);
}

Tensor4 repeat_kv(const Tensor4& states, std::size_t num_key_value_groups) {
    return xt::repeat(states, num_key_value_groups, 1);  // (B, H, S, D)
}

AttentionInputs causal_attention_inputs(const RotaryTable& rotary_table, std::size_t batch_size,
                                        std::size_t seq_len, std::size_t past_len) {
    const std::size_t kv_len = past_len + seq_len;  // S
    require(kv_len <= rotary_table.cos.shape(0),
            "attention: kv_len {} exceeds the {} positions of the rotary table", kv_len,
            rotary_table.cos.shape(0));

    // The first new token has position past_len, not 0.
    IdMatrix positions = position_ids(batch_size, seq_len);  // (B, T)
    for (Id& position : positions) position += static_cast<Id>(past_len);

    // The mask is lower-right aligned: T rows for the new tokens, S columns for all tokens.
    return {rotary_table, positions, expand_mask(causal_mask(seq_len, kv_len), batch_size)};
}

AttentionInputs AttentionInputs::make(const std::vector<RotaryTable>& rotary_tables,
                                      std::size_t batch_size, std::size_t seq_len,
                                      std::size_t past_len) {
    return causal_attention_inputs(rotary_tables.front(), batch_size, seq_len, past_len);
}

AttentionInputs causal_attention_inputs(const Config& config, std::size_t batch_size,
                                        std::size_t seq_len) {
    const RotaryTable table = make_rotary_table(rope_frequencies(config), seq_len);
    return causal_attention_inputs(table, batch_size, seq_len);
}

QueriesKeysValues project_qkv(const AttentionLayer& layer, const Tensor3& hidden_states) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
    return {split_heads(q_proj(hidden_states), layer.num_attention_heads),
            split_heads(k_proj(hidden_states), layer.num_key_value_heads),
            split_heads(v_proj(hidden_states), layer.num_key_value_heads)};
}

QueriesKeysValues apply_qk_norm_and_rope(const QKNorm& qk_norm, const QueriesKeysValues& heads,
                                         const AttentionInputs& inputs) {
    const auto& [queries, keys, values] = heads;
    const auto rotate = [&](const Tensor4& states) {
        return apply_rotary_embedding(states, inputs.rotary_table, inputs.position_ids);
    };

    // Qwen3, OLMo 2: normalize with weights, then apply RoPE.
    if (const auto* norm = std::get_if<QKNormWithWeights>(&qk_norm))
        return {rotate(rms_norm_heads(queries, norm->q_weight, norm->eps)),
                rotate(rms_norm_heads(keys, norm->k_weight, norm->eps)), values};

    // Llama 4: apply RoPE, then normalize without weights.
    if (const auto* norm = std::get_if<QKNormWithoutWeights>(&qk_norm))
        return {rms_normalize(rotate(queries), norm->eps),
                rms_normalize(rotate(keys), norm->eps), values};

    return {rotate(queries), rotate(keys), values};
}

Tensor3 project_output(const AttentionLayer& layer, const Tensor4& context) {
    return layer.projections.o_proj(merge_heads(context));  // (B, T, C)
}

AttentionLayer::Output AttentionLayer::operator()(const Tensor3& hidden_states,
                                                  const AttentionInputs& inputs,
                                                  LayerCache* cache) const {
    // Project and split into heads, then normalize and rotate queries and keys.
    const QueriesKeysValues projected = project_qkv(*this, hidden_states);
    const auto [queries, keys, values] = apply_qk_norm_and_rope(qk_norm, projected, inputs);

    // Compute attention over the new keys and values and, with a cache, over the cached ones.
    AttentionOutput result;
    if (cache) {
        cache->update(keys, values);
        result =
            grouped_query_attention(queries, cache->keys, cache->values, inputs.attention_mask);
    } else {
        result = grouped_query_attention(queries, keys, values, inputs.attention_mask);
    }

    // Concatenate the heads and project them back to the hidden size.
    return {project_output(*this, result.context), std::move(result.weights)};
}

AttentionLayer make_attention_layer(const Config& config, Generator& generator) {
    AttentionLayer layer{config.num_attention_heads, config.num_key_value_heads,
                         make_projections(config, generator), NoQKNorm{},
                         config.attention_dropout};
    if (config.qk_norm == QKNormType::without_weights)
        layer.qk_norm = QKNormWithoutWeights{config.rms_norm_eps};
    if (config.qk_norm == QKNormType::with_weights) {
        const Vector ones = xt::ones<Real>({config.head_dim});
        layer.qk_norm = QKNormWithWeights{ones, ones, config.rms_norm_eps};
    }
    if (config.qk_norm == QKNormType::over_all_heads)
        layer.qk_norm =
            QKNormWithWeights{xt::ones<Real>({config.num_attention_heads * config.head_dim}),
                              xt::ones<Real>({config.num_key_value_heads * config.head_dim}),
                              config.rms_norm_eps};
    return layer;
}

}  // namespace llm
