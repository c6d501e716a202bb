#include "chapters/19_latent_attention/latent_attention.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/19_latent_attention/absorbed_attention.hpp"

namespace llm {

void LatentCache::update(const Tensor4& new_entries) {
    if (seq_len() == 0) {
        entries = new_entries;
        return;
    }
    require(
        new_entries.shape(0) == entries.shape(0) && new_entries.shape(3) == entries.shape(3),
        "latent cache: new entries of {} do not match those of {}", new_entries.shape(),
        entries.shape());
    const Tensor4 all = xt::concatenate(xt::xtuple(entries, new_entries), 2);
    entries = all;
}

bool LatentCache::crop(std::size_t count) {
    if (count > seq_len()) return false;
    entries = first_tokens(entries, count);
    return true;
}

LatentAttention make_latent_attention(const LatentSizes& sizes, Real rms_norm_eps,
                                      Generator& generator) {
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = sizes;
    require(C > 0 && H > 0 && R > 0 && Dn > 0 && Dr % 2 == 0 && Dv > 0,
            "latent attention: sizes other than Dr must be positive, and Dr {} even", Dr);
    LatentAttention attention{H, Dn, Dr, Dv, {}, {}, {}, {}, {}};
    if (q_lora_rank) {
        Linear q_a_proj = make_linear(C, *q_lora_rank, false, generator);
        attention.q_proj =
            LowRankQueries{std::move(q_a_proj), make_rms_norm(*q_lora_rank, rms_norm_eps),
                           make_linear(*q_lora_rank, H * (Dn + Dr), false, generator)};
    } else {
        attention.q_proj = make_linear(C, H * (Dn + Dr), false, generator);
    }
    attention.kv_a_proj_with_mqa = make_linear(C, R + Dr, false, generator);
    attention.kv_a_layernorm = make_rms_norm(R, rms_norm_eps);
    attention.kv_b_proj = make_linear(R, H * (Dn + Dv), false, generator);
    attention.o_proj = make_linear(H * Dv, C, false, generator);
    attention.scale = 1 / std::sqrt(static_cast<Real>(Dn + Dr));
    return attention;
}

LatentSizes sizes_of(const LatentAttention& attention) {
    LatentSizes sizes{attention.o_proj.weight.shape(0),
                      attention.num_attention_heads,
                      std::nullopt,
                      attention.kv_lora_rank(),
                      attention.qk_nope_head_dim,
                      attention.qk_rope_head_dim,
                      attention.v_head_dim};
    if (const auto* low_rank = std::get_if<LowRankQueries>(&attention.q_proj))
        sizes.q_lora_rank = low_rank->q_a_layernorm.weight.size();
    return sizes;
}

Tensor4 features(const Tensor4& states, std::size_t first, std::size_t count) {
    return xt::view(states, xt::all(), xt::all(), xt::all(), xt::range(first, first + count));
}

Tensor4 join_features(const Tensor4& left, const Tensor4& right) {
    return xt::concatenate(xt::xtuple(left, right), 3);
}

Tensor4 rotate_last(const Tensor4& states, const PatternAttentionInputs& inputs,
                    std::size_t qk_rope_head_dim) {
    if (qk_rope_head_dim == 0) return states;
    const std::size_t num_nope = states.shape(3) - qk_rope_head_dim;
    // Row t of the table is that of token t, whatever its position.
    const Tensor4 rotated = apply_rotary_embedding(
        features(states, num_nope, qk_rope_head_dim), inputs.rotary_tables.front(),
        position_ids(states.shape(0), states.shape(2)));
    return join_features(features(states, 0, num_nope), rotated);
}

Tensor3 project_queries(const QueryProjection& projection, const Tensor3& hidden_states) {
    if (const auto* q_proj = std::get_if<Linear>(&projection)) return (*q_proj)(hidden_states);
    const auto& [q_a_proj, q_a_layernorm, q_b_proj] = std::get<LowRankQueries>(projection);
    return q_b_proj(q_a_layernorm(q_a_proj(hidden_states)));
}

Tensor4 latent_queries(const LatentAttention& attention, const Tensor3& projected,
                       const PatternAttentionInputs& inputs) {
    return rotate_last(split_heads(projected, attention.num_attention_heads), inputs,
                       attention.qk_rope_head_dim);
}

Tensor4 latent_entries(const LatentAttention& attention, const Tensor3& compressed,
                       const PatternAttentionInputs& inputs) {
    // Normalize the latent vector; its norm must not change the shared key.
    const std::size_t rank = attention.kv_lora_rank();
    const Tensor4 parts = split_heads(compressed, 1);  // (B, 1, T, R + Dr)
    const Tensor3 latent = merge_heads(features(parts, 0, rank));
    const Tensor4 normalized = split_heads(attention.kv_a_layernorm(latent), 1);
    // Rotate the shared key.
    const Tensor4 key = features(parts, rank, attention.qk_rope_head_dim);
    return join_features(normalized, rotate_last(key, inputs, attention.qk_rope_head_dim));
}

ExpandedKeysValues expand(const LatentAttention& attention, const Tensor4& entries) {
    const std::size_t rank = attention.kv_lora_rank(),
                      num_heads = attention.num_attention_heads;
    const std::size_t Dn = attention.qk_nope_head_dim, Dr = attention.qk_rope_head_dim;
    const Tensor3 latents = merge_heads(features(entries, 0, rank));  // (B, S, R)
    const Tensor4 expanded =                                          // (B, H, S, Dn + Dv)
        split_heads(attention.kv_b_proj(latents), num_heads);
    const Tensor4 shared_keys = repeat_kv(features(entries, rank, Dr), num_heads);
    return {join_features(features(expanded, 0, Dn), shared_keys),
            features(expanded, Dn, attention.v_head_dim)};
}

AttentionOutput expanded_attention(const LatentAttention& attention, const Tensor4& queries,
                                   const Tensor4& entries, const Tensor4& mask) {
    auto [keys, values] = expand(attention, entries);
    return grouped_query_attention({queries, std::move(keys), std::move(values)}, mask,
                                   ScoreMod{attention.scale});
}

Tensor4 latent_mask(const PatternAttentionInputs& inputs, std::size_t kv_len,
                    std::size_t batch_size) {
    const IdVector key_positions = xt::arange<Id>(0, static_cast<Id>(kv_len));
    return expand_mask(pattern_mask(FullAttention{}, inputs.position_ids, key_positions),
                       batch_size);
}

AttentionLayer::Output LatentAttention::operator()(const Tensor3& hidden_states,
                                                   const PatternAttentionInputs& inputs,
                                                   LatentCache* cache) const {
    // Compress the new tokens, and append them to the cache.
    const Tensor4 queries =
        latent_queries(*this, project_queries(q_proj, hidden_states), inputs);
    const Tensor4 new_entries =
        latent_entries(*this, kv_a_proj_with_mqa(hidden_states), inputs);
    if (cache) {
        require(inputs.position_ids.size() > 0 &&
                    inputs.position_ids(0) == static_cast<Id>(cache->seq_len()),
                "latent attention: position ids do not begin at {}, after the cached tokens",
                cache->seq_len());
        cache->update(new_entries);
    }
    const Tensor4& entries = cache ? cache->entries : new_entries;  // (B, 1, S, R + Dr)
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    const Tensor4 mask = latent_mask(inputs, entries.shape(2), batch_size);

    // Compute attention, in the order that needs fewer FLOPs.
    AttentionOutput result =
        cache && absorbing_is_cheaper(sizes_of(*this), seq_len, entries.shape(2))
            ? absorbed_attention(*this, queries, entries, mask)
            : expanded_attention(*this, queries, entries, mask);
    return {o_proj(merge_heads(result.context)), std::move(result.weights)};
}

Real yarn_mscale(Real factor, Real mscale) {
    return factor <= 1 ? 1 : Real(0.1) * mscale * std::log(factor) + 1;
}

}  // namespace llm
