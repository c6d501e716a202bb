#include "chapters/17_long_context/pattern_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/kv_cache.hpp"

namespace llm {
namespace {

// The keys and values that the new tokens may attend to.
PositionedKeysValues visible_keys_values(const QueriesKeysValues& heads,
                                         const IdVector& position_ids, RollingCache* cache) {
    if (!cache) return {heads.keys, heads.values, position_ids};
    require(position_ids.size() > 0 && position_ids(0) == static_cast<Id>(cache->seq_len),
            "pattern_attention: position ids do not begin at {}, after the cached tokens",
            cache->seq_len);
    return cache->update(heads.keys, heads.values);
}

}  // namespace

PatternAttentionInputs pattern_attention_inputs(const std::vector<RotaryTable>& rotary_tables,
                                                std::size_t seq_len, std::size_t past_len) {
    const std::size_t end = past_len + seq_len;
    PatternAttentionInputs inputs{
        {}, xt::arange<Id>(static_cast<Id>(past_len), static_cast<Id>(end))};
    for (const auto& [cos, sin, num_unrotated] : rotary_tables) {
        require(end <= cos.shape(0),
                "pattern_attention_inputs: a rotary table of {} is too short for {} positions",
                cos.shape(), end);
        inputs.rotary_tables.push_back({xt::view(cos, xt::range(past_len, end), xt::all()),
                                        xt::view(sin, xt::range(past_len, end), xt::all()),
                                        num_unrotated});
    }
    return inputs;
}

PatternAttentionInputs PatternAttentionInputs::make(
    const std::vector<RotaryTable>& rotary_tables, std::size_t /*batch_size*/,
    std::size_t seq_len, std::size_t past_len) {
    return pattern_attention_inputs(rotary_tables, seq_len, past_len);
}

IdMatrix repeat_ids(const IdVector& position_ids, std::size_t batch_size) {
    return xt::repeat(reshape(position_ids, {1, position_ids.size()}), batch_size, 0);
}

AttentionInputs rope_inputs(const PatternAttention& attention,
                            const QueriesKeysValues& projected,
                            const PatternAttentionInputs& inputs) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(projected.queries);
    const auto* rope = std::get_if<RoPE>(&attention.position_encoding);
    require(!rope || rope->table < inputs.rotary_tables.size(),
            "pattern_attention: rotary table {} of {} does not exist", rope ? rope->table : 0,
            inputs.rotary_tables.size());
    const RotaryTable no_rotation{xt::ones<Real>({seq_len, head_dim / 2}),
                                  xt::zeros<Real>({seq_len, head_dim / 2}), head_dim % 2};
    // A table has one row per token: row t is that of token t, whatever its position.
    return {rope ? inputs.rotary_tables[rope->table] : no_rotation,
            position_ids(batch_size, inputs.position_ids.size()),
            {}};
}

QueriesKeysValues encode_positions(const PatternAttention& attention,
                                   const QueriesKeysValues& projected,
                                   const PatternAttentionInputs& inputs) {
    QueriesKeysValues heads = apply_qk_norm_and_rope(attention.layer.qk_norm, projected,
                                                     rope_inputs(attention, projected, inputs));
    if (attention.temperature_tuning)
        heads.queries = tune_temperature(
            heads.queries, repeat_ids(inputs.position_ids, heads.queries.shape(0)),
            *attention.temperature_tuning);
    return heads;
}

AttentionLayer::Output PatternAttention::operator()(const Tensor3& hidden_states,
                                                    const PatternAttentionInputs& inputs,
                                                    RollingCache* cache) const {
    // Project and split into heads, then encode positions.
    const QueriesKeysValues heads =
        encode_positions(*this, project_qkv(layer, hidden_states), inputs);

    // Compute attention over the visible keys. The pattern needs the positions of the keys,
    // because a rolling cache does not hold them in order.
    const PositionedKeysValues visible = visible_keys_values(heads, inputs.position_ids, cache);
    const Tensor4 mask =  // (B, 1, T, S)
        expand_mask(pattern_mask(pattern, inputs.position_ids, visible.position_ids),
                    hidden_states.shape(0));
    AttentionOutput result =
        grouped_query_attention({heads.queries, visible.keys, visible.values}, mask, score_mod);
    return {gate_and_project(*this, hidden_states, result.context), std::move(result.weights)};
}

Tensor3 gate_and_project(const PatternAttention& attention, const Tensor3& hidden_states,
                         const Tensor4& context) {
    if (!attention.output_gate) return project_output(attention.layer, context);
    const Tensor3 gate = activate(Sigmoid, (*attention.output_gate)(hidden_states));
    return attention.layer.projections.o_proj(merge_heads(context) * gate);
}

PatternAttention make_pattern_attention(const AttentionLayer& layer, std::size_t head_dim,
                                        const AttentionPattern& pattern) {
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));
    return {layer, pattern, RoPE{}, std::nullopt, {scale, std::nullopt, std::nullopt}};
}

RollingCache PatternAttention::make_cache() const { return make_rolling_cache(pattern); }

RollingCache make_rolling_cache(const AttentionPattern& pattern) {
    if (const auto* sliding = std::get_if<SlidingWindow>(&pattern)) return {sliding->window};
    if (const auto* chunked = std::get_if<ChunkedAttention>(&pattern))
        return {chunked->chunk_size};
    if (const auto* sinks = std::get_if<SinksAndWindow>(&pattern))
        return {sinks->window, sinks->num_sinks};
    return {std::numeric_limits<std::size_t>::max()};  // never full
}

std::uint64_t num_cached_tokens(const AttentionPattern& pattern, std::uint64_t seq_len) {
    if (std::holds_alternative<FullAttention>(pattern)) return seq_len;
    const RollingCache cache = make_rolling_cache(pattern);
    return std::min<std::uint64_t>(seq_len, std::uint64_t{cache.num_sinks} + cache.window);
}

std::uint64_t rolling_cache_bytes(const std::vector<AttentionPattern>& patterns,
                                  std::uint64_t seq_len, std::size_t num_key_value_heads,
                                  std::size_t head_dim, std::size_t bytes_per_element) {
    std::uint64_t num_tokens = 0;  // of all layers
    for (const AttentionPattern& pattern : patterns)
        num_tokens += num_cached_tokens(pattern, seq_len);
    return num_tokens *
           kv_cache_bytes_per_token(1, num_key_value_heads, head_dim, bytes_per_element);
}

}  // namespace llm
