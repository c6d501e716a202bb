#include "chapters/models/anatomy.hpp"

#include <algorithm>
#include <functional>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/load.hpp"
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
    if (config.family->learned_positions)
        return {name, "learned", "04_rope.md#optional-absolute-position-embeddings"};
    const std::size_t with_rope =
        count_layers(config, [](const LayerConfig& layer) { return layer.use_rope; });
    if (with_rope < config.layers.size())
        return {name, "RoPE, " + share(with_rope, config), "17_long_context.md#the-layer"};
    return {name, "RoPE", "04_rope.md"};
}

Choice theta_of(const FamilyConfig& config) {
    if (config.family->learned_positions) return {"theta", "-", ""};
    const auto whole = [](Real number) { return with_commas(std::uint64_t(number)); };
    std::string theta = whole(config.rope_theta);
    if (config.rope_local_base_freq) theta += ", " + whole(*config.rope_local_base_freq);
    return {"theta", theta, "04_rope.md#formula"};
}

Choice scaling_of(const FamilyConfig& config) {
    const std::string name = "scaling", page = "17_long_context.md#yarn";
    if (config.yarn) return {name, "YaRN, " + brief(double(config.yarn->factor)), page};
    if (config.longrope) return {name, "LongRoPE", page};
    if (config.rope_factor != 1)
        return {name, "linear, " + brief(double(config.rope_factor)),
                "04_rope.md#optional-longer-contexts"};
    if (!config.rope_scaling) return {name, "-", ""};
    const auto* llama3 = std::get_if<Llama3Scaling>(&*config.rope_scaling);
    return {name, llama3 ? "Llama 3, " + brief(double(llama3->factor)) : "frequency factors",
            "04_rope.md#optional-longer-contexts"};
}

Choice window_of(const FamilyConfig& config) {
    if (config.linear)
        return {"window",
                "linear, " +
                    share(count_layers(
                              config, [](const LayerConfig& layer) { return layer.is_linear; }),
                          config),
                "20_linear_attention.md"};
    std::string width;
    const std::size_t count = count_layers(config, [&](const LayerConfig& layer) {
        if (const auto* sliding = std::get_if<SlidingWindow>(&layer.pattern))
            width = to_text(sliding->window);
        if (const auto* chunked = std::get_if<ChunkedAttention>(&layer.pattern))
            width = "chunks " + to_text(chunked->chunk_size);
        return !std::holds_alternative<FullAttention>(layer.pattern);
    });
    if (count == 0) return {"window", "-", ""};
    return {"window",
            count == config.layers.size() ? width : width + ", " + share(count, config),
            "17_long_context.md#patterns"};
}

Choice kv_heads_of(const FamilyConfig& config) {
    if (config.latent)
        return {"KV heads",
                "latent, " + to_text(config.latent->kv_lora_rank) + " + " +
                    to_text(config.latent->qk_rope_head_dim),
                "19_latent_attention.md"};
    return {"KV heads", to_text(config.num_key_value_heads), "05_gqa.md"};
}

// The features of a query head.
std::size_t query_head_dim(const FamilyConfig& config) {
    return config.latent ? config.latent->qk_nope_head_dim + config.latent->qk_rope_head_dim
                         : config.head_dim;
}

Choice qk_norm_of(const FamilyConfig& config) {
    const std::string name = "QK norm", page = "05_gqa.md#optional-qk-norm";
    if (config.qk_norm == QKNormType::with_weights) return {name, "each head", page};
    if (config.qk_norm == QKNormType::over_all_heads) return {name, "all heads", page};
    if (config.qk_norm == QKNormType::without_weights) return {name, "no weights", page};
    return {name, "-", ""};
}

Choice biases_of(const FamilyConfig& config) {
    const std::string page = "02_projections.md";
    const bool attention = config.attention_bias == AttentionBias::qkvo;
    if (attention && config.mlp_bias) return {"biases", "all", page};
    if (attention) return {"biases", "attention", page};
    if (config.mlp_bias) return {"biases", "MLP", page};
    if (config.attention_bias == AttentionBias::qkv) return {"biases", "q, k, v", page};
    return {"biases", "-", ""};
}

Choice norm_of(const FamilyConfig& config) {
    const std::string page = "07_rmsnorm_vs_layernorm.md";
    switch (config.family->norm_type) {
        case NormType::layer_norm:
            return {"norm", "LayerNorm", page};
        case NormType::layer_norm_without_bias:
            return {"norm", "LayerNorm, no bias", page};
        case NormType::rms_norm:
            break;
    }
    return {"norm", config.family->norms_add_one ? "RMSNorm, 1 + w" : "RMSNorm", page};
}

Choice placement_of(const FamilyConfig& config) {
    const std::map<NormPlacement, std::string> names = {
        {NormPlacement::pre_norm, "pre-norm"},
        {NormPlacement::res_post_norm, "res-post-norm"},
        {NormPlacement::sandwich, "sandwich"},
        {NormPlacement::parallel, "parallel"}};
    return {"placement", names.at(config.family->norm_placement), "08_pre_vs_post_norm.md"};
}

Choice mlp_of(const FamilyConfig& config) {
    const std::string page = "06_swiglu.md";
    if (!config.family->mlp_has_gate) return {"MLP", "GELU", page};
    if (config.swiglu_limit)
        return {"MLP", "SwiGLU, clamped", "18_experts.md#published-models"};
    const bool gelu = config.activation.function == GELU.function ||
                      config.activation.function == GELUTanh.function;
    const bool silu = config.activation.function == SiLU.function;
    return {"MLP",
            gelu   ? "GeGLU"
            : silu ? "SwiGLU"
                   : "gated, " + std::string(config.activation.name),
            page};
}

bool has_dense_layers(const FamilyConfig& config) {
    return count_layers(config, [](const LayerConfig& layer) { return !layer.is_moe; }) > 0;
}

Choice ratio_of(const FamilyConfig& config) {
    const auto ratio = [&](std::size_t width) {
        return fixed(double(width) / double(config.hidden_size), 2);
    };
    std::string text, page = "06_swiglu.md";
    if (has_dense_layers(config)) text = ratio(config.intermediate_size);
    if (config.experts.num_experts > 0) {
        const std::string each = ratio(config.experts.moe_intermediate_size) + " each";
        text += text.empty() ? each : ", " + each;
        page = "18_experts.md";
    }
    return {"F / C", text, page};
}

Choice experts_of(const FamilyConfig& config) {
    const ExpertSizes& experts = config.experts;
    if (experts.num_experts == 0) return {"experts", "-", ""};
    return {"experts",
            to_text(experts.num_experts_per_tok) + " of " + to_text(experts.num_experts) +
                shared_experts_of(experts),
            "18_experts.md"};
}

// Scores are multiplied by 1/√D in most models.
Choice multipliers_of(const FamilyConfig& config) {
    std::vector<std::string> parts;
    if (config.family->scales_embeddings) parts.push_back("embeddings √C");
    if (config.attn_logit_softcapping)
        parts.push_back("caps " + brief(double(*config.attn_logit_softcapping)) + " and " +
                        brief(double(config.final_logit_softcapping.value_or(0))));
    if (config.attention_multiplier)
        parts.push_back("four of muP");
    else if (config.logits_scaling != 1)
        parts.push_back("logits " + brief(1 / double(config.logits_scaling)));
    if (!config.family->names.sinks.empty()) parts.push_back("sinks");
    if (config.temperature_tuning) parts.push_back("temperature");
    if (parts.empty()) return {"multipliers", "-", ""};
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return {"multipliers", text,
            config.attention_multiplier ? "13_training.md#wider-models-mup"
                                        : "17_long_context.md#scores"};
}

std::vector<Choice> parameters_of(const FamilyConfig& config) {
    const bool moe = config.experts.num_experts > 0;
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
        positions_of(config),
        theta_of(config),
        scaling_of(config),
        window_of(config),
        {"heads", to_text(config.num_attention_heads), "03_head_splitting.md"},
        kv_heads_of(config),
        {"head_dim", to_text(query_head_dim(config)), "03_head_splitting.md"},
        {"H · D / C", fixed(H * double(query_head_dim(config)) / C, 2), "03_head_splitting.md"},
        qk_norm_of(config),
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

std::vector<PublishedExample> published_examples() {
    std::vector<PublishedExample> examples;
    for (const JsonFile& model : JsonFile(asset("published_models.json")).objects("models"))
        examples.push_back(
            {model.text("name"), model.size("year"), read_any_config(model.object("config"))});
    return examples;
}

std::vector<Anatomy> published_anatomies() {
    std::vector<Anatomy> anatomies;
    for (const PublishedExample& example : published_examples())
        anatomies.push_back(anatomy_of(example));
    return anatomies;
}

PublishedExample find_example(const std::string& name_or_folder) {
    std::string names;
    for (const PublishedExample& example : published_examples()) {
        if (example.name == name_or_folder) return example;
        names += (names.empty() ? "" : ", ") + example.name;
    }
    const std::string file =
        is_file(name_or_folder) ? name_or_folder : name_or_folder + "/config.json";
    require(is_file(file), "{} is neither a config.json or its folder nor one of {}",
            name_or_folder, names);
    return {name_or_folder, 0, read_any_config(open_config(file))};
}

}  // namespace llm::models
