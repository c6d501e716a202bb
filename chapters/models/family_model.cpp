#include "chapters/models/family_model.hpp"

#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"

template struct llm::DecoderModel<llm::models::FamilyLayer, llm::models::FamilyConfig,
                                  llm::models::FinalNorm>;

namespace llm::models {

const MlpOrMoe& mlp_of(const FamilyLayer& layer) {
    return std::visit([](const auto& block) -> const MlpOrMoe& { return block.mlp; }, layer);
}

namespace {

// The table of layers with full attention, or of all: of the features that RoPE rotates.
RotaryTable first_rotary_table(const FamilyConfig& config, std::size_t num_positions) {
    const std::size_t num_rotated = rotary_dim(config);
    if (config.yarn)
        return make_yarn_rotary_table(num_rotated, config.rope_theta, *config.yarn,
                                      num_positions);
    const Vector frequencies = inverse_frequencies(num_rotated, config.rope_theta);
    if (config.longrope)
        return make_longrope_rotary_table(frequencies, *config.longrope, num_positions);
    if (config.rope_factor != 1)
        return make_rotary_table(interpolate_positions(frequencies, config.rope_factor),
                                 num_positions);
    Config rotated = config;
    rotated.head_dim = num_rotated;
    return make_rotary_table(rope_frequencies(rotated), num_positions);
}

}  // namespace

std::vector<RotaryTable> rotary_tables(const FamilyConfig& config, std::size_t num_positions) {
    require(num_positions <= config.max_position_embeddings,
            "model: a sequence of {} tokens exceeds max_position_embeddings of {}",
            num_positions, config.max_position_embeddings);
    std::vector<RotaryTable> tables = {first_rotary_table(config, num_positions)};
    tables.front().num_unrotated = config.head_dim - rotary_dim(config);
    if (config.rope_local_base_freq)
        tables.push_back(make_rotary_table(
            inverse_frequencies(config.head_dim, *config.rope_local_base_freq), num_positions));
    return tables;
}

namespace {

PatternAttention empty_attention(const FamilyConfig& config, const LayerConfig& layer) {
    PatternAttention result{empty_attention_layer(config), layer.pattern, RoPE{}, {}};
    const bool slides = std::holds_alternative<SlidingWindow>(layer.pattern);
    if (slides && config.rope_local_base_freq) result.position_encoding = RoPE{1};
    if (!layer.use_rope) result.position_encoding = NoPE{config.temperature_tuning};
    result.score_mod.scale = score_scale(config);
    result.score_mod.attn_logit_softcapping = config.attn_logit_softcapping;
    if (!config.family->names.sinks.empty()) result.score_mod.sinks = Vector{};
    if (config.family->output_gate) result.output_gate = empty_linear(false);
    return result;
}

LinearAttention empty_linear_attention(const FamilyConfig& config) {
    const Linear linear = empty_linear(false);
    return {config.linear->num_key_heads,
            config.linear->num_value_heads,
            UpdateRule::delta,
            linear,
            linear,
            linear,
            Decay{linear, {}, {}},
            {},
            {{}, config.rms_norm_eps},
            linear};
}

LatentAttention empty_latent_attention(const FamilyConfig& config) {
    const LatentSizes& sizes = *config.latent;
    const RMSNorm norm{{}, Real(1e-6)};  // whatever rms_norm_eps is
    LatentAttention result{sizes.num_attention_heads,
                           sizes.qk_nope_head_dim,
                           sizes.qk_rope_head_dim,
                           sizes.v_head_dim,
                           empty_linear(false),
                           empty_linear(false),
                           norm,
                           empty_linear(false),
                           empty_linear(false),
                           score_scale(config)};
    if (sizes.q_lora_rank)
        result.q_proj = LowRankQueries{empty_linear(false), norm, empty_linear(false)};
    return result;
}

GatedMlp empty_gated_mlp(const FamilyConfig& config, bool bias) {
    return {empty_linear(bias), empty_linear(bias), empty_linear(bias), config.activation};
}

MlpOrMoe empty_mlp(const FamilyConfig& config) {
    if (config.family->mlp_has_gate) return empty_gated_mlp(config, config.mlp_bias);
    return Mlp{empty_linear(config.mlp_bias), empty_linear(config.mlp_bias), config.activation};
}

MixtureOfExperts empty_moe(const FamilyConfig& config) {
    const bool bias = config.family->has_biases;
    MixtureOfExperts moe{empty_linear(bias),
                         {},
                         std::nullopt,
                         config.experts.num_experts_per_tok,
                         config.routing};
    Expert expert = empty_gated_mlp(config, bias);
    if (config.swiglu_limit) {
        ClampedGatedMlp clamped{empty_linear(true), empty_linear(true), empty_linear(true)};
        clamped.limit = *config.swiglu_limit;
        expert = clamped;
    }
    moe.experts.assign(config.experts.num_experts, expert);
    if (config.experts.n_shared_experts > 0) moe.shared = empty_gated_mlp(config, bias);
    if (!config.family->names.shared_gate.empty()) moe.shared_gate = empty_linear(false);
    return moe;
}

}  // namespace

FamilyModel make_empty_model(const FamilyConfig& config) {
    const NormType norm_type = config.family->norm_type;
    const RMSNorm norm{{}, config.rms_norm_eps};
    LayerNorm layer_norm{{}, std::nullopt, config.rms_norm_eps};
    if (norm_type == NormType::layer_norm) layer_norm.bias = Vector{};
    FamilyModel model{config, {}, {}, norm, {}};
    if (norm_type != NormType::rms_norm) model.norm = layer_norm;
    if (config.family->learned_positions) model.embed_positions = Matrix{};
    if (!config.tie_word_embeddings) model.lm_head = Matrix{};
    model.embedding_scale = config.embedding_multiplier;
    if (config.family->scales_embeddings)
        model.embedding_scale = std::sqrt(static_cast<Real>(config.hidden_size));
    model.logits_scaling = config.logits_scaling;
    model.final_logit_softcapping = config.final_logit_softcapping;
    for (const LayerConfig& layer : config.layers) {
        MlpOrMoe mlp = empty_mlp(config);
        if (layer.is_moe) mlp = empty_moe(config);
        if (config.latent) {
            model.layers.push_back(
                DeepseekBlock{empty_latent_attention(config), mlp, norm, norm});
            continue;
        }
        if (layer.is_linear) {
            model.layers.push_back(
                QwenNextBlock{empty_linear_attention(config), mlp, norm, norm});
            continue;
        }
        const PatternAttention attention = empty_attention(config, layer);
        const NormPlacement placement = config.family->norm_placement;
        if (placement == NormPlacement::parallel)
            model.layers.push_back(CohereBlock{attention, mlp, layer_norm});
        else if (norm_type != NormType::rms_norm)
            model.layers.push_back(Gpt2Block{attention, mlp, layer_norm, layer_norm});
        else if (placement == NormPlacement::sandwich)
            model.layers.push_back(GemmaBlock{attention, mlp, norm, norm, norm, norm});
        else if (placement == NormPlacement::res_post_norm)
            model.layers.push_back(OlmoBlock{attention, mlp, norm, norm});
        else
            model.layers.push_back(
                MoeBlock{attention, mlp, norm, norm, config.residual_multiplier});
    }
    return model;
}

namespace {

// The block as Llama's, or none.
std::optional<PreNormBlock> llama_block(FamilyLayer& layer, const FamilyConfig& config) {
    auto* block = std::get_if<MoeBlock>(&layer);
    auto* mlp = block ? std::get_if<GatedMlp>(&block->mlp) : nullptr;
    if (!mlp || mlp->activation.function != SiLU.function || block->residual_multiplier != 1)
        return std::nullopt;
    PatternAttention& attention = block->self_attn;
    const auto* sliding = std::get_if<SlidingWindow>(&attention.pattern);
    const bool sees_all = std::holds_alternative<FullAttention>(attention.pattern) ||
                          (sliding && sliding->window >= config.max_position_embeddings);
    const auto* rope = std::get_if<RoPE>(&attention.position_encoding);
    const Real scale = attention.score_mod.scale * std::sqrt(Real(config.head_dim));
    if (!sees_all || !rope || rope->table != 0 || std::abs(scale - 1) > Real(1e-6) ||
        attention.score_mod.attn_logit_softcapping || attention.score_mod.sinks ||
        attention.output_gate)
        return std::nullopt;
    return PreNormBlock{std::move(attention.layer), std::move(*mlp),
                        std::move(block->attention_norm), std::move(block->ffn_norm)};
}

}  // namespace

std::optional<Model> as_llama_model(FamilyModel model) {
    const FamilyConfig& config = model.config;
    auto* norm = std::get_if<RMSNorm>(&model.norm);
    if (!norm || model.embed_positions || model.embedding_scale != 1 ||
        model.logits_scaling != 1 || model.final_logit_softcapping || config.yarn ||
        config.longrope || config.rope_factor != 1 || rotary_dim(config) != config.head_dim)
        return std::nullopt;
    Model llama{
        config, std::move(model.embed_tokens), {}, std::move(*norm), std::move(model.lm_head)};
    for (FamilyLayer& layer : model.layers) {
        std::optional<PreNormBlock> block = llama_block(layer, config);
        if (!block) return std::nullopt;
        llama.layers.push_back(std::move(*block));
    }
    return llama;
}

FamilyModel make_mixtral(const MoeDecoder& decoder) {
    FamilyConfig config = config_with(mixtral_family(), validate_model(decoder.config));
    config.layers.clear();
    FamilyModel model{{}, decoder.embed_tokens, {}, decoder.norm, decoder.lm_head};
    for (const MoeBlock& layer : decoder.layers) {
        const auto* moe = std::get_if<MixtureOfExperts>(&layer.mlp);
        const auto* routing = moe ? std::get_if<SoftmaxRouting>(&moe->routing) : nullptr;
        require(routing && routing->norm_topk_prob && routing->routed_scaling_factor == 1 &&
                    !moe->shared,
                "make_mixtral: every layer must have a mixture with softmax routing and no "
                "shared experts");
        const auto& expert = std::get<GatedMlp>(moe->experts.front());
        config.experts = {moe->experts.size(), moe->num_experts_per_tok,
                          expert.gate_proj.weight.shape(0), 0};
        config.layers.push_back({layer.self_attn.pattern, true, true});
        model.layers.push_back(layer);
    }
    config.intermediate_size = config.experts.moe_intermediate_size;
    model.config = config;
    return model;
}

}  // namespace llm::models
