#include "chapters/19_latent_attention/latent_attention_backward.hpp"

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

// Backward pass of rotate_last: the last Dr features are rotated back.
Tensor4 rotate_last_backward(const Tensor4& output_gradient,
                             const PatternAttentionInputs& inputs,
                             std::size_t qk_rope_head_dim) {
    if (qk_rope_head_dim == 0) return output_gradient;
    const std::size_t num_nope = output_gradient.shape(3) - qk_rope_head_dim;
    const Tensor4 rotated = rope_backward(
        features(output_gradient, num_nope, qk_rope_head_dim), inputs.rotary_tables.front(),
        position_ids(output_gradient.shape(0), output_gradient.shape(2)));
    return join_features(features(output_gradient, 0, num_nope), rotated);
}

// As project_queries; saves what is between the two matrices.
Tensor3 queries_forward(const QueryProjection& projection, LatentActivations& saved) {
    if (const auto* q_proj = std::get_if<Linear>(&projection)) return (*q_proj)(saved.input);
    const auto& [q_a_proj, q_a_layernorm, q_b_proj] = std::get<LowRankQueries>(projection);
    saved.q_compressed = q_a_proj(saved.input);
    saved.q_normalized = q_a_layernorm(saved.q_compressed);
    return q_b_proj(saved.q_normalized);
}

// The gradient with respect to the input, through the queries.
Tensor3 queries_backward(const QueryProjection& projection, const LatentActivations& saved,
                         const Tensor3& output_gradient,  // (B, T, H*(Dn + Dr))
                         QueryProjection& gradient) {
    if (const auto* q_proj = std::get_if<Linear>(&projection))
        return linear_backward(*q_proj, saved.input, output_gradient,
                               std::get<Linear>(gradient));
    const auto& [q_a_proj, q_a_layernorm, q_b_proj] = std::get<LowRankQueries>(projection);
    auto& into = std::get<LowRankQueries>(gradient);
    const Tensor3 normalized_gradient =
        linear_backward(q_b_proj, saved.q_normalized, output_gradient, into.q_b_proj);
    const Tensor3 compressed_gradient = norm_backward(q_a_layernorm, saved.q_compressed,
                                                      normalized_gradient, into.q_a_layernorm);
    return linear_backward(q_a_proj, saved.input, compressed_gradient, into.q_a_proj);
}

// The sum over all heads: (B, H, T, D) -> (B, 1, T, D).
Tensor4 sum_of_heads(const Tensor4& states) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    const Tensor3 sums = xt::sum(states, {1});
    return reshape(sums, {batch_size, 1, seq_len, head_dim});
}

// The gradient with respect to the output of kv_a_proj_with_mqa, (B, T, R + Dr).
Tensor3 expand_backward(const LatentAttention& attention, const PatternAttentionInputs& inputs,
                        const LatentActivations& saved, const QueriesKeysValues& head_gradient,
                        LatentAttention& gradient) {
    const std::size_t Dn = attention.qk_nope_head_dim, Dr = attention.qk_rope_head_dim;
    const std::size_t rank = attention.kv_lora_rank();

    // kv_b_proj gave each head its keys without a position and its values.
    const Tensor3 expanded_gradient =
        merge_heads(join_features(features(head_gradient.keys, 0, Dn), head_gradient.values));
    const Tensor3 normalized_gradient = linear_backward(attention.kv_b_proj, saved.latents,
                                                        expanded_gradient, gradient.kv_b_proj);
    const Tensor3 latent = merge_heads(features(split_heads(saved.compressed, 1), 0, rank));
    const Tensor3 latent_gradient = norm_backward(attention.kv_a_layernorm, latent,
                                                  normalized_gradient, gradient.kv_a_layernorm);

    // All heads read the shared key: their gradients add up, and are then rotated back.
    const Tensor4 key_gradient =
        rotate_last_backward(sum_of_heads(features(head_gradient.keys, Dn, Dr)), inputs, Dr);
    return merge_heads(join_features(split_heads(latent_gradient, 1), key_gradient));
}

}  // namespace

ForwardPass<LatentActivations> attention_forward(const LatentAttention& attention,
                                                 const Tensor3& input,
                                                 const PatternAttentionInputs& inputs,
                                                 Generator* /*dropout_generator*/) {
    LatentActivations saved;
    saved.input = input;
    saved.heads.queries =
        latent_queries(attention, queries_forward(attention.q_proj, saved), inputs);

    saved.compressed = attention.kv_a_proj_with_mqa(input);
    const Tensor4 entries = latent_entries(attention, saved.compressed, inputs);
    saved.latents = merge_heads(features(entries, 0, attention.kv_lora_rank()));
    auto [keys, values] = expand(attention, entries);
    saved.heads.keys = std::move(keys);
    saved.heads.values = std::move(values);

    AttentionOutput result = grouped_query_attention(
        saved.heads, latent_mask(inputs, input.shape(1), input.shape(0)),
        ScoreMod{attention.scale});
    saved.attentions = std::move(result.weights);
    saved.context = std::move(result.context);
    return {attention.o_proj(merge_heads(saved.context)), std::move(saved)};
}

Tensor3 attention_backward(const LatentAttention& attention,
                           const PatternAttentionInputs& inputs, const LatentActivations& saved,
                           const Tensor3& output_gradient, LatentAttention& gradient) {
    // The forward pass in reverse: output projection, attention, keys and values, queries.
    const Tensor3 merged_gradient = linear_backward(
        attention.o_proj, merge_heads(saved.context), output_gradient, gradient.o_proj);
    ScoreMod unused;  // has no parameters
    const QueriesKeysValues head_gradient = grouped_query_attention_backward(
        saved.heads, latent_mask(inputs, saved.input.shape(1), saved.input.shape(0)),
        saved.attentions, {}, split_heads(merged_gradient, attention.num_attention_heads),
        ScoreMod{attention.scale}, unused);
    const Tensor3 compressed_gradient =
        expand_backward(attention, inputs, saved, head_gradient, gradient);
    const Tensor3 projected_gradient = merge_heads(
        rotate_last_backward(head_gradient.queries, inputs, attention.qk_rope_head_dim));

    // Queries, and keys and values, read the same input: their gradients add up.
    const Tensor3 from_queries =
        queries_backward(attention.q_proj, saved, projected_gradient, gradient.q_proj);
    const Tensor3 from_keys_values =
        linear_backward(attention.kv_a_proj_with_mqa, saved.input, compressed_gradient,
                        gradient.kv_a_proj_with_mqa);
    return from_queries + from_keys_values;
}

void add_parameters(ParameterList& list, const std::string& name, LatentAttention& attention) {
    if (auto* q_proj = std::get_if<Linear>(&attention.q_proj))
        add_parameters(list, name + ".q_proj", *q_proj);
    if (auto* low_rank = std::get_if<LowRankQueries>(&attention.q_proj)) {
        add_parameters(list, name + ".q_a_proj", low_rank->q_a_proj);
        add_parameters(list, name + ".q_a_layernorm", low_rank->q_a_layernorm);
        add_parameters(list, name + ".q_b_proj", low_rank->q_b_proj);
    }
    add_parameters(list, name + ".kv_a_proj_with_mqa", attention.kv_a_proj_with_mqa);
    add_parameters(list, name + ".kv_a_layernorm", attention.kv_a_layernorm);
    add_parameters(list, name + ".kv_b_proj", attention.kv_b_proj);
    add_parameters(list, name + ".o_proj", attention.o_proj);
}

LatentDecoder make_latent_decoder(Config config, const LatentSizes& sizes,
                                  Generator& generator) {
    require(config.attention_bias == AttentionBias::none && config.attention_dropout == 0,
            "latent decoder: biases and attention dropout are not supported");
    config.head_dim = sizes.qk_rope_head_dim;
    require(sizes.hidden_size == config.hidden_size &&
                sizes.num_attention_heads == config.num_attention_heads,
            "latent decoder: an attention of {} features and {} heads does not match a "
            "configuration of {} and {}",
            sizes.hidden_size, sizes.num_attention_heads, config.hidden_size,
            config.num_attention_heads);
    config = validate_model(config);
    const std::size_t hidden_size = config.hidden_size;
    const RMSNorm norm = make_rms_norm(hidden_size, config.rms_norm_eps);
    LatentDecoder model{
        config, randn({config.vocab_size, hidden_size}, generator), {}, norm, {}};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        LatentAttention self_attn =
            make_latent_attention(sizes, config.rms_norm_eps, generator);
        GatedMlp mlp =
            make_gated_mlp(hidden_size, config.intermediate_size, false, SiLU, generator);
        model.layers.push_back({std::move(self_attn), std::move(mlp), norm, norm});
    }
    Matrix head = make_linear(hidden_size, config.vocab_size, false, generator).weight;
    if (!config.tie_word_embeddings) model.lm_head = std::move(head);
    return model;
}

}  // namespace llm
