#include "chapters/models/family_model.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/models/family_keys.hpp"

template struct llm::DecoderModel<llm::models::FamilyLayer, llm::models::FamilyConfig,
                                  llm::models::FinalNorm>;
template std::vector<llm::RoutedTokens> llm::routed_tokens(const llm::models::FamilyModel&,
                                                           const llm::IdMatrix&);

namespace llm::models {

const MlpOrMoe& mlp_of(const FamilyLayer& layer) {
    return std::visit([](const auto& block) -> const MlpOrMoe& { return block.mlp; }, layer);
}

namespace {

std::vector<RopeParameters> distinct_ropes(const FamilyConfig& config) {
    std::vector<RopeParameters> ropes;
    for (const LayerConfig& layer : config.layers)
        if (const RopeParameters* rope = rope_of(layer))
            if (std::find(ropes.begin(), ropes.end(), *rope) == ropes.end())
                ropes.push_back(*rope);
    return ropes;
}

}  // namespace

std::vector<RotaryTable> rotary_tables(const FamilyConfig& config, std::size_t num_positions) {
    require(num_positions <= config.max_position_embeddings,
            "model: a sequence of {} tokens exceeds max_position_embeddings of {}",
            num_positions, config.max_position_embeddings);
    std::vector<RotaryTable> tables;
    for (const RopeParameters& rope : distinct_ropes(config))
        tables.push_back(make_rotary_table(rope, num_positions));
    return tables;
}

Config sizes_of(const FamilyConfig& config, const AttentionConfig& attention) {
    Config sizes = config;
    sizes.num_attention_heads = attention.num_attention_heads;
    sizes.num_key_value_heads = attention.num_key_value_heads;
    sizes.head_dim = attention.head_dim;
    sizes.attention_bias = attention.bias;
    sizes.qk_norm = attention.qk_norm;
    return sizes;
}

namespace {

// Builds empty mixers and MLPs of the layers of one model.
struct LayerBuilder {
    const FamilyConfig& config;
    std::vector<RopeParameters> ropes = distinct_ropes(config);

    PatternAttention operator()(const AttentionConfig& attention) const {
        PatternAttention result;
        result.layer = empty_attention_layer(sizes_of(config, attention));
        result.pattern = attention.pattern;
        result.position_encoding = NoPE{};
        if (attention.rope)
            result.position_encoding = RoPE{std::size_t(
                std::find(ropes.begin(), ropes.end(), *attention.rope) - ropes.begin())};
        result.temperature_tuning = attention.temperature_tuning;
        result.score_mod.scale = Real(attention.scale);
        result.score_mod.attn_logit_softcapping = attention.attn_logit_softcapping;
        if (attention.sinks) result.score_mod.sinks = Vector{};
        // Rows of q_proj have its bias.
        const bool in_q_proj = config.family->names.output_gate.empty();
        if (attention.output_gate)
            result.output_gate =
                empty_linear(in_q_proj && attention.bias != AttentionBias::none);
        return result;
    }
    LinearAttention operator()(const LinearSizes& sizes) const {
        const Linear linear = empty_linear(false);
        return {sizes.num_key_heads,
                sizes.num_value_heads,
                UpdateRule::delta,
                linear,
                linear,
                linear,
                Decay{linear, {}, {}},
                {},
                {{}, config.rms_norm_eps},
                linear};
    }
    GatedConvolution operator()(const GatedConvolutionSizes& sizes) const {
        const Linear linear = empty_linear(sizes.bias);
        return {linear, {}, linear.bias, linear};
    }
    LatentAttention operator()(const LatentConfig& latent) const {
        const LatentSizes& sizes = latent.sizes;
        const Linear linear = empty_linear(false);
        const RMSNorm norm{{}, Real(1e-6)};  // whatever rms_norm_eps is
        LatentAttention result{sizes.num_attention_heads,
                               sizes.qk_nope_head_dim,
                               sizes.qk_rope_head_dim,
                               sizes.v_head_dim,
                               linear,
                               linear,
                               norm,
                               linear,
                               linear,
                               Real(latent.scale())};
        if (sizes.q_lora_rank) result.q_proj = LowRankQueries{linear, norm, linear};
        return result;
    }

    MlpOrMoe operator()(const MlpConfig& mlp) const {
        if (mlp.gate) return gated(mlp.bias, mlp.activation);
        return Mlp{empty_linear(mlp.bias), empty_linear(mlp.bias), mlp.activation};
    }
    MlpOrMoe operator()(const MoeConfig& moe) const {
        MixtureOfExperts result{empty_linear(moe.bias),
                                {},
                                std::nullopt,
                                moe.sizes.num_experts_per_tok,
                                moe.routing};
        if (auto* sigmoid = std::get_if<SigmoidRouting>(&result.routing);
            sigmoid && !moe.correction_bias)
            sigmoid->e_score_correction_bias = xt::zeros<Real>({moe.sizes.num_experts});
        Expert expert = gated(moe.bias, moe.activation);
        if (moe.swiglu_limit) {
            ClampedGatedMlp clamped{empty_linear(true), empty_linear(true), empty_linear(true)};
            clamped.limit = *moe.swiglu_limit;
            expert = clamped;
        }
        result.experts.assign(moe.sizes.num_experts, expert);
        if (moe.sizes.shared_width() > 0) result.shared = gated(moe.bias, moe.activation);
        if (moe.shared_gate) result.shared_gate = empty_linear(false);
        return result;
    }
    static GatedMlp gated(bool bias, const Activation& activation) {
        return {empty_linear(bias), empty_linear(bias), empty_linear(bias), activation};
    }
};

// An empty norm of the model.
FinalNorm empty_norm(const FamilyConfig& config) {
    if (config.norm_type == NormType::rms_norm) return RMSNorm{{}, config.rms_norm_eps};
    LayerNorm norm{{}, std::nullopt, config.rms_norm_eps};
    if (config.norm_type == NormType::layer_norm) norm.bias = Vector{};
    return norm;
}

// The block of chapter 08 around a mixer and an MLP. Throws ValueError for one that no family
// has (block types are compiled).
template <class Mixer>
FamilyLayer block_of(const FamilyConfig& config, const Mixer& mixer, const MlpOrMoe& mlp) {
    const FinalNorm any_norm = empty_norm(config);
    const NormPlacement placement = config.norm_placement;
    if (const auto* norm = std::get_if<RMSNorm>(&any_norm)) {
        if (placement == NormPlacement::pre_norm)
            return PreNormBlockWith<RMSNorm, MlpOrMoe, Mixer>{mixer, mlp, *norm, *norm,
                                                              config.residual_multiplier};
        if constexpr (std::same_as<Mixer, PatternAttention>) {
            if (placement == NormPlacement::sandwich)
                return GemmaBlock{mixer, mlp, *norm, *norm, *norm, *norm};
            if (placement == NormPlacement::res_post_norm)
                return OlmoBlock{mixer, mlp, *norm, *norm};
        }
    } else if constexpr (std::same_as<Mixer, PatternAttention>) {
        const auto& layer_norm = std::get<LayerNorm>(any_norm);
        if (placement == NormPlacement::parallel) return CohereBlock{mixer, mlp, layer_norm};
        if (placement == NormPlacement::pre_norm)
            return Gpt2Block{mixer, mlp, layer_norm, layer_norm, config.residual_multiplier};
    }
    throw ValueError(config.family->model_type + ": no block has these norms");
}

}  // namespace

FamilyModel make_empty_model(const FamilyConfig& config) {
    FamilyModel model{config, {}, {}, empty_norm(config), {}};
    if (config.learned_positions) model.embed_positions = Matrix{};
    if (!config.tie_word_embeddings) model.lm_head = Matrix{};
    model.embedding_scale = config.embedding_multiplier;
    model.logits_scaling = config.logits_scaling;
    model.final_logit_softcapping = config.final_logit_softcapping;
    const LayerBuilder build{config};
    for (const LayerConfig& layer : config.layers) {
        const MlpOrMoe mlp = std::visit(build, layer.mlp);
        model.layers.push_back(
            std::visit([&](const auto& mixer) { return block_of(config, build(mixer), mlp); },
                       layer.mixer));
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
    const Real scale = attention.score_mod.scale * std::sqrt(Real(config.head_dim));
    if (!sees_all || !std::holds_alternative<RoPE>(attention.position_encoding) ||
        std::abs(scale - 1) > Real(1e-6) || attention.score_mod.attn_logit_softcapping ||
        attention.temperature_tuning || attention.score_mod.sinks || attention.output_gate)
        return std::nullopt;
    return PreNormBlock{std::move(attention.layer), std::move(*mlp),
                        std::move(block->attention_norm), std::move(block->ffn_norm)};
}

// The sizes of chapter 09's model with the one RoPE of all layers, or none.
std::optional<Config> llama_config(const FamilyConfig& config) {
    const std::vector<RopeParameters> ropes = distinct_ropes(config);
    if (ropes.size() != 1 || ropes[0].rotary_dim != ropes[0].head_dim) return std::nullopt;
    Config sizes = sizes_of(config, *first_attention(config));
    sizes.rope_theta = ropes[0].rope_theta;
    sizes.rope_scaling.reset();
    if (const auto* llama3 = std::get_if<Llama3Scaling>(&ropes[0].scaling))
        sizes.rope_scaling = *llama3;
    else if (const auto* divisors = std::get_if<FrequencyFactors>(&ropes[0].scaling))
        sizes.rope_scaling = *divisors;
    else if (!std::holds_alternative<std::monostate>(ropes[0].scaling))
        return std::nullopt;
    return sizes;
}

}  // namespace

std::optional<Model> as_llama_model(FamilyModel model) {
    const FamilyConfig& config = model.config;
    auto* norm = std::get_if<RMSNorm>(&model.norm);
    const auto all_alike = [&](const LayerConfig& layer) {
        const AttentionConfig *first = first_attention(config), *own = attention_of(layer);
        return own && mlp_of(layer) && own->num_attention_heads == first->num_attention_heads &&
               own->num_key_value_heads == first->num_key_value_heads &&
               own->head_dim == first->head_dim;
    };
    if (!norm || model.embed_positions || model.embedding_scale != 1 ||
        model.logits_scaling != 1 || model.final_logit_softcapping ||
        !std::all_of(config.layers.begin(), config.layers.end(), all_alike))
        return std::nullopt;
    const std::optional<Config> sizes = llama_config(config);
    if (!sizes) return std::nullopt;
    Model llama{
        *sizes, std::move(model.embed_tokens), {}, std::move(*norm), std::move(model.lm_head)};
    for (FamilyLayer& layer : model.layers) {
        std::optional<PreNormBlock> block = llama_block(layer, config);
        if (!block) return std::nullopt;
        llama.layers.push_back(std::move(*block));
    }
    return llama;
}

FamilyModel make_mixtral(const MoeDecoder& decoder) {
    FamilyConfig config = config_with(mixtral_family(), validate_model(decoder.config));
    const std::vector<LayerConfig> layers = std::exchange(config.layers, {});
    FamilyModel model{{}, decoder.embed_tokens, {}, decoder.norm, decoder.lm_head};
    for (const MoeBlock& layer : decoder.layers) {
        const auto* moe = std::get_if<MixtureOfExperts>(&layer.mlp);
        const auto* routing = moe ? std::get_if<SoftmaxRouting>(&moe->routing) : nullptr;
        require(routing && routing->norm_topk_prob && routing->routed_scaling_factor == 1 &&
                    !moe->shared,
                "make_mixtral: every layer must have a mixture with softmax routing and no "
                "shared experts");
        const auto& expert = std::get<GatedMlp>(moe->experts.front());
        LayerConfig settings = layers.front();
        attention_of(settings)->pattern = layer.self_attn.pattern;
        settings.mlp = make_experts(config,
                                    {moe->experts.size(), moe->num_experts_per_tok,
                                     expert.gate_proj.weight.shape(0), 0},
                                    SoftmaxRouting{});
        config.layers.push_back(settings);
        config.intermediate_size = expert.gate_proj.weight.shape(0);
        model.layers.push_back(layer);
    }
    model.config = config;
    return model;
}

}  // namespace llm::models
