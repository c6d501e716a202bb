#include "chapters/models/anatomy.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// "24/32": 24 of 32 layers.
std::string share(std::size_t count, const FamilyConfig& config) {
    return to_text(count) + "/" + to_text(config.layers.size());
}

std::size_t count_layers(const FamilyConfig& config,
                         const std::function<bool(const LayerConfig&)>& holds) {
    return std::size_t(std::count_if(config.layers.begin(), config.layers.end(), holds));
}

Choice positions_of(const FamilyConfig& config) {
    const std::string name = "positions";
    if (config.learned_positions)
        return {name, "learned", "04_rope.md#optional-absolute-position-embeddings"};
    // Linear attention and convolutions know the order of tokens by themselves.
    const std::size_t with_rope = count_layers(config, [](const LayerConfig& layer) {
        return rope_of(layer) || std::holds_alternative<LinearSizes>(layer.mixer) ||
               std::holds_alternative<GatedConvolutionSizes>(layer.mixer);
    });
    if (with_rope < config.layers.size())
        return {name, "RoPE, " + share(with_rope, config), "17_long_context.md#the-layer"};
    return {name, "RoPE", "04_rope.md"};
}

// All that the layers have, that of the layers without a window first.
Choice theta_of(const FamilyConfig& config) {
    const RopeParameters* main = main_rope(config);
    if (!main) return {"theta", "-", ""};
    std::vector<Real> thetas = {main->rope_theta};
    for (const LayerConfig& layer : config.layers)
        if (const RopeParameters* rope = rope_of(layer))
            if (std::find(thetas.begin(), thetas.end(), rope->rope_theta) == thetas.end())
                thetas.push_back(rope->rope_theta);
    std::string text;
    for (const Real theta : thetas)
        text += (text.empty() ? "" : ", ") + with_commas(std::uint64_t(theta));
    return {"theta", text, "04_rope.md#formula"};
}

// How many features of each head RoPE rotates: where there are others, all that layers have.
Choice rotated_of(const FamilyConfig& config) {
    std::string text;
    std::set<std::size_t> seen;
    for (const LayerConfig& layer : config.layers)
        if (const RopeParameters* rope = attention_of(layer) ? rope_of(layer) : nullptr;
            rope && rope->rotary_dim < rope->head_dim && seen.insert(rope->rotary_dim).second)
            text += (text.empty() ? "" : ", ") + to_text(rope->rotary_dim) + " of " +
                    to_text(rope->head_dim);
    if (text.empty()) return {"rotated", "-", ""};
    return {"rotated", text, "04_rope.md#optional-longer-contexts"};
}

Choice scaling_of(const FamilyConfig& config) {
    const std::string name = "scaling", page = "17_long_context.md#yarn",
                      longer = "04_rope.md#optional-longer-contexts";
    const RopeParameters* rope = main_rope(config);
    if (!rope) return {name, "-", ""};
    if (const auto* yarn = std::get_if<YarnScaling>(&rope->scaling))
        return {name, "YaRN, " + brief(double(yarn->factor)), page};
    if (std::holds_alternative<LongRopeScaling>(rope->scaling)) return {name, "LongRoPE", page};
    if (const auto* divisors = std::get_if<FrequencyFactors>(&rope->scaling))
        return {name, "linear, " + brief(double(divisors->factors(0))), longer};
    if (const auto* llama3 = std::get_if<Llama3Scaling>(&rope->scaling))
        return {name, "Llama 3, " + brief(double(llama3->factor)), longer};
    return {name, "-", ""};
}

Choice window_of(const FamilyConfig& config) {
    const std::size_t num_linear = count_layers(config, [](const LayerConfig& layer) {
        return std::holds_alternative<LinearSizes>(layer.mixer);
    });
    if (num_linear > 0)
        return {"window", "linear, " + share(num_linear, config), "20_linear_attention.md"};
    const std::size_t num_convolutions = count_layers(config, [](const LayerConfig& layer) {
        return std::holds_alternative<GatedConvolutionSizes>(layer.mixer);
    });
    if (num_convolutions > 0)
        return {"window", "convolution, " + share(num_convolutions, config),
                "20_linear_attention.md#gated-short-convolutions"};
    std::string width;
    const std::size_t count = count_layers(config, [&](const LayerConfig& layer) {
        const AttentionConfig* attention = attention_of(layer);
        if (!attention) return false;
        if (const auto* sliding = std::get_if<SlidingWindow>(&attention->pattern))
            width = to_text(sliding->window);
        if (const auto* chunked = std::get_if<ChunkedAttention>(&attention->pattern))
            width = "chunks " + to_text(chunked->chunk_size);
        return !std::holds_alternative<FullAttention>(attention->pattern);
    });
    if (count == 0) return {"window", "-", ""};
    return {"window",
            count == config.layers.size() ? width : width + ", " + share(count, config),
            "17_long_context.md#patterns"};
}

// Latent attention, if the first layer has it.
const LatentSizes* latent_sizes(const FamilyConfig& config) {
    const auto* latent = std::get_if<LatentConfig>(&config.layers.front().mixer);
    return latent ? &latent->sizes : nullptr;
}

Choice kv_heads_of(const FamilyConfig& config) {
    if (const LatentSizes* sizes = latent_sizes(config))
        return {"KV heads",
                "latent, " + to_text(sizes->kv_lora_rank) + " + " +
                    to_text(sizes->qk_rope_head_dim),
                "19_latent_attention.md"};
    return {"KV heads", to_text(config.num_key_value_heads), "05_gqa.md"};
}

// The features of a query head.
std::size_t query_head_dim(const FamilyConfig& config) {
    const LatentSizes* sizes = latent_sizes(config);
    return sizes ? sizes->qk_nope_head_dim + sizes->qk_rope_head_dim : config.head_dim;
}

Choice qk_norm_of(const FamilyConfig& config) {
    const std::map<QKNormType, std::string> names = {
        {QKNormType::with_weights, "each head"},
        {QKNormType::over_all_heads, "all heads"},
        {QKNormType::without_weights, "no weights"}};
    const AttentionConfig* attention = first_attention(config);
    if (!attention || attention->qk_norm == QKNormType::none) return {"QK norm", "-", ""};
    return {"QK norm", names.at(attention->qk_norm), "05_gqa.md#optional-qk-norm"};
}

// The output of attention or of linear attention is multiplied by a gate.
Choice gate_of(const FamilyConfig& config) {
    const AttentionConfig* attention = first_attention(config);
    if (!attention || !attention->output_gate) return {"output gate", "-", ""};
    return {"output gate", "each feature", "20_linear_attention.md"};
}

Choice biases_of(const FamilyConfig& config) {
    const std::string page = "02_projections.md";
    const AttentionConfig* attention = first_attention(config);
    const LayerConfig& first = config.layers.front();
    const MlpConfig* dense = models::mlp_of(first);
    const bool in_mlp = dense ? dense->bias : moe_of(first)->bias;
    const AttentionBias bias = attention ? attention->bias : AttentionBias::none;
    if (bias == AttentionBias::qkvo) return {"biases", in_mlp ? "all" : "attention", page};
    if (in_mlp) return {"biases", "MLP", page};
    if (bias == AttentionBias::qkv) return {"biases", "q, k, v", page};
    return {"biases", "-", ""};
}

Choice norm_of(const FamilyConfig& config) {
    const bool adds_one = config.family->layout.norm_offset == 1;
    const std::map<NormType, std::string> names = {
        {NormType::layer_norm, "LayerNorm"},
        {NormType::layer_norm_without_bias, "LayerNorm, no bias"},
        {NormType::rms_norm, adds_one ? "RMSNorm, 1 + w" : "RMSNorm"}};
    return {"norm", names.at(config.norm_type), "07_rmsnorm_vs_layernorm.md"};
}

Choice placement_of(const FamilyConfig& config) {
    const std::map<NormPlacement, std::string> names = {
        {NormPlacement::pre_norm, "pre-norm"},
        {NormPlacement::res_post_norm, "res-post-norm"},
        {NormPlacement::sandwich, "sandwich"},
        {NormPlacement::parallel, "parallel"}};
    return {"placement", names.at(config.norm_placement), "08_pre_vs_post_norm.md"};
}

Choice mlp_of(const FamilyConfig& config) {
    const std::string page = "06_swiglu.md";
    const LayerConfig& first = config.layers.front();
    const MlpConfig* dense = models::mlp_of(first);
    const MoeConfig* moe = first_moe(config);
    if (dense && !dense->gate) return {"MLP", "GELU", page};
    if (moe && moe->swiglu_limit)
        return {"MLP", "SwiGLU, clamped", "18_experts.md#published-models"};
    const Activation activation = dense ? dense->activation : moe->activation;
    const bool gelu =
        activation.function == GELU.function || activation.function == GELUTanh.function;
    const bool silu = activation.function == SiLU.function;
    return {"MLP",
            gelu   ? "GeGLU"
            : silu ? "SwiGLU"
                   : "gated, " + std::string(activation.name),
            page};
}

bool has_dense_layers(const FamilyConfig& config) {
    return count_layers(config, [](const LayerConfig& layer) { return !moe_of(layer); }) > 0;
}

Choice ratio_of(const FamilyConfig& config) {
    const auto ratio = [&](std::size_t width) {
        return fixed(double(width) / double(config.hidden_size), 2);
    };
    std::string text, page = "06_swiglu.md";
    if (has_dense_layers(config)) text = ratio(config.intermediate_size);
    if (const MoeConfig* moe = first_moe(config)) {
        const std::string each = ratio(moe->sizes.moe_intermediate_size) + " each";
        text += text.empty() ? each : ", " + each;
        page = "18_experts.md";
    }
    return {"F / C", text, page};
}

Choice experts_of(const FamilyConfig& config) {
    const MoeConfig* moe = first_moe(config);
    if (!moe) return {"experts", "-", ""};
    return {"experts",
            to_text(moe->sizes.num_experts_per_tok) + " of " + to_text(moe->sizes.num_experts) +
                shared_experts_of(moe->sizes),
            "18_experts.md"};
}

// Scores are multiplied by 1/√D in most models.
Choice multipliers_of(const FamilyConfig& config) {
    std::vector<std::string> parts;
    if (config.embedding_multiplier == std::sqrt(Real(config.hidden_size)))
        parts.push_back("embeddings √C");
    const AttentionConfig* attention = first_attention(config);
    const bool cap = attention && attention->attn_logit_softcapping;
    if (cap)
        parts.push_back("caps " + brief(double(*attention->attn_logit_softcapping)) + " and " +
                        brief(double(config.final_logit_softcapping.value_or(0))));
    const bool mup = config.residual_multiplier != 1;
    if (mup)
        parts.push_back("four of muP");
    else if (config.logits_scaling != 1)
        parts.push_back("logits " + brief(1 / double(config.logits_scaling)));
    if (attention && attention->sinks) parts.push_back("sinks");
    if (count_layers(config, [](const LayerConfig& layer) {
            return attention_of(layer) && attention_of(layer)->temperature_tuning;
        }) > 0)
        parts.push_back("temperature");
    if (parts.empty()) return {"multipliers", "-", ""};
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return {"multipliers", text,
            mup ? "experiments.md#wider-models-mup" : "17_long_context.md#scores"};
}

std::vector<Choice> parameters_of(const FamilyConfig& config) {
    const bool moe = first_moe(config) != nullptr;
    return {{"parameters", with_commas(count_parameters(config).total()),
             "09_full_model.md#parameters-flops-and-cache"},
            {"active", moe ? with_commas(count_parameters(config).active()) : "-",
             moe ? "18_experts.md" : ""}};
}

}  // namespace

Anatomy anatomy_of(const PublishedExample& example) {
    const FamilyConfig& config = example.config;
    const double C = double(config.hidden_size), H = double(config.num_attention_heads);
    const std::string sizes = "09_full_model.md";
    std::vector<Choice> choices = {
        {"attends to", "the past", "01_masking.md"},
        positions_of(config),
        theta_of(config),
        rotated_of(config),
        scaling_of(config),
        window_of(config),
        {"heads", to_text(config.num_attention_heads), "03_head_splitting.md"},
        kv_heads_of(config),
        {"head_dim", to_text(query_head_dim(config)), "03_head_splitting.md"},
        {"H · D / C", fixed(H * double(query_head_dim(config)) / C, 2), "03_head_splitting.md"},
        qk_norm_of(config),
        gate_of(config),
        norm_of(config),
        placement_of(config),
        biases_of(config),
        mlp_of(config),
        ratio_of(config),
        experts_of(config),
        multipliers_of(config),
        {"layers", to_text(config.num_hidden_layers), sizes},
        {"C", to_text(config.hidden_size), sizes},
        {"C / L", fixed(C / double(config.num_hidden_layers), 0), sizes},
        {"vocabulary", with_commas(config.vocab_size), "10_tokenizer.md"},
        {"context", with_commas(config.max_position_embeddings), "17_long_context.md"},
        {"tied", config.tie_word_embeddings ? "yes" : "no", sizes}};
    for (Choice& choice : parameters_of(config)) choices.push_back(std::move(choice));
    return {example.name, example.year, std::move(choices)};
}

}  // namespace llm::models
