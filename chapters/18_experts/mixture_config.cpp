#include "chapters/18_experts/mixture_config.hpp"

#include "chapters/09_full_model/config_json.hpp"
#include "chapters/17_long_context/long_context_config.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

const std::map<std::string, MixtureModelType> model_types = {
    {"mixtral", MixtureModelType::mixtral},
    {"qwen3_moe", MixtureModelType::qwen3_moe},
    {"gpt_oss", MixtureModelType::gpt_oss},
    {"llama4_text", MixtureModelType::llama4_text}};

[[noreturn]] void refuse_value(const JsonFile& json, const std::string& key,
                               const std::string& value, const std::string& supported) {
    json.refuse(key, value + " is not supported; supported: " + supported);
}

std::size_t size_or(const JsonFile& json, const std::string& key, std::size_t otherwise) {
    return json.has(key) ? json.size(key) : otherwise;
}
bool boolean_or(const JsonFile& json, const std::string& key, bool otherwise) {
    return json.has(key) ? json.boolean(key) : otherwise;
}
Real positive_or(const JsonFile& json, const std::string& key, double otherwise) {
    const double value = json.has(key) ? json.number(key) : otherwise;
    if (!(value > 0)) json.refuse(key + " must be above 0");
    return static_cast<Real>(value);
}

void refuse_unsupported(const JsonFile& json, MixtureModelType type) {
    if (json.has("hidden_act") && json.text("hidden_act") != "silu")
        refuse_value(json, "hidden_act", json.text("hidden_act"), "silu");
    const bool has_bias = type == MixtureModelType::gpt_oss;
    if (boolean_or(json, "attention_bias", has_bias) != has_bias)
        refuse_value(json, "attention_bias", has_bias ? "false" : "true",
                     has_bias ? "true" : "false");
    if (boolean_or(json, "use_sliding_window", false))
        refuse_value(json, "use_sliding_window", "true", "false");
    if (json.has("quantization_config")) {
        const std::string method = json.text("quantization_config.quant_method");
        if (type != MixtureModelType::gpt_oss || method != "mxfp4")
            refuse_value(json, "quantization_config.quant_method", method, "mxfp4 of gpt_oss");
    }
    for (const char* key : {"rope_parameters", "partial_rotary_factor", "clip_qkv",
                            "n_shared_experts", "shared_expert_intermediate_size"})
        if (json.has(key)) json.refuse(key, "is not supported");
    if ((type == MixtureModelType::mixtral || type == MixtureModelType::qwen3_moe) &&
        json.has("rope_scaling"))
        json.refuse("rope_scaling", "is not supported for " + to_text(type));
}

// The defaults in which the types differ.
struct Defaults {
    double rms_norm_eps, rope_theta;
    std::size_t num_experts, num_experts_per_tok;
};
Defaults defaults_of(MixtureModelType type) {
    if (type == MixtureModelType::mixtral) return {1e-5, 1'000'000, 8, 2};
    if (type == MixtureModelType::qwen3_moe) return {1e-6, 10'000, 128, 8};
    if (type == MixtureModelType::llama4_text) return {1e-5, 500'000, 16, 1};
    return {1e-5, 150'000, 128, 4};
}

Config read_sizes(const JsonFile& json, MixtureModelType type) {
    const Defaults defaults = defaults_of(type);
    Config config;
    config.hidden_size = json.size("hidden_size");
    config.intermediate_size = type == MixtureModelType::llama4_text
                                   ? size_or(json, "intermediate_size_mlp", 16384)
                                   : json.size("intermediate_size");
    config.num_hidden_layers = json.size("num_hidden_layers");
    config.num_attention_heads = json.size("num_attention_heads");
    config.num_key_value_heads = json.size("num_key_value_heads");
    const std::size_t default_head_dim = type == MixtureModelType::gpt_oss       ? 64
                                         : type == MixtureModelType::llama4_text ? 128
                                                                                 : 0;
    config.head_dim = size_or(json, "head_dim", default_head_dim);
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_position_embeddings");
    config.rms_norm_eps = positive_or(json, "rms_norm_eps", defaults.rms_norm_eps);
    config.rope_theta = positive_or(json, "rope_theta", defaults.rope_theta);
    config.tie_word_embeddings = boolean_or(json, "tie_word_embeddings", false);
    if (type == MixtureModelType::qwen3_moe)
        config.qk_norm = QKNormType::with_weights;
    else if (type == MixtureModelType::llama4_text && boolean_or(json, "use_qk_norm", true))
        config.qk_norm = QKNormType::without_weights;
    else
        config.qk_norm = QKNormType::none;
    return validate_model(config);
}

MixtureSizes read_experts(const JsonFile& json, MixtureModelType type) {
    const Defaults defaults = defaults_of(type);
    const bool qwen = type == MixtureModelType::qwen3_moe;
    const std::size_t num_experts =
        size_or(json, qwen ? "num_experts" : "num_local_experts", defaults.num_experts);
    const std::size_t count =
        size_or(json, "num_experts_per_tok",
                size_or(json, "experts_per_token", defaults.num_experts_per_tok));
    if (count > num_experts)
        json.refuse("num_experts_per_tok", "must be at most the number of experts, " +
                                               to_text(num_experts) + ", not " +
                                               to_text(count));
    return {num_experts, count,
            qwen ? size_or(json, "moe_intermediate_size", 768) : json.size("intermediate_size"),
            type == MixtureModelType::llama4_text ? std::size_t{1} : 0};
}

// Sets the layers that a key lists.
void set_layers(const JsonFile& json, const std::string& key, bool value,
                std::vector<bool>& layers) {
    if (!json.has(key)) return;
    for (const std::int64_t n : json.ids(key)) {
        if (n >= std::int64_t(layers.size()))
            json.refuse(key, "has no layer " + to_text(n) + " of " + to_text(layers.size()));
        layers[static_cast<std::size_t>(n)] = value;
    }
}

// Qwen3-MoE and Llama 4: a layer has a mixture if a step divides its number, counted from 1.
// Qwen3-MoE's mlp_only_layers lists exceptions; Llama 4's moe_layers lists all of them instead.
std::vector<bool> read_mixture_layers(const JsonFile& json, MixtureModelType type,
                                      std::size_t num_hidden_layers) {
    const bool llama4 = type == MixtureModelType::llama4_text;
    std::vector<bool> is_mixture(num_hidden_layers, true);
    if (type != MixtureModelType::qwen3_moe && !llama4) return is_mixture;
    const std::size_t step =
        size_or(json, llama4 ? "interleave_moe_layer_step" : "decoder_sparse_step", 1);
    const bool listed = llama4 && json.has("moe_layers");
    for (std::size_t n = 0; n < num_hidden_layers; ++n)
        is_mixture[n] = !listed && (n + 1) % step == 0;
    if (llama4)
        set_layers(json, "moe_layers", true, is_mixture);
    else
        set_layers(json, "mlp_only_layers", false, is_mixture);
    return is_mixture;
}

// Llama 4: 1 in no_rope_layers means that the layer does use RoPE. If the list is empty or
// missing, every fourth layer has none.
std::vector<bool> read_use_rope(const JsonFile& json, std::size_t num_hidden_layers) {
    const std::size_t interval = size_or(json, "no_rope_layer_interval", 4);
    std::vector<bool> use_rope(num_hidden_layers);
    for (std::size_t n = 0; n < num_hidden_layers; ++n) use_rope[n] = (n + 1) % interval != 0;
    if (!json.has("no_rope_layers")) return use_rope;
    const std::vector<std::int64_t> given = json.ids("no_rope_layers");
    if (given.empty()) return use_rope;
    if (given.size() != num_hidden_layers)
        json.refuse("no_rope_layers has " + to_text(given.size()) + " entries for " +
                    to_text(num_hidden_layers) + " layers");
    for (std::size_t n = 0; n < num_hidden_layers; ++n) use_rope[n] = given[n] != 0;
    return use_rope;
}

// Llama 4: layers with RoPE see chunks, the others see everything.
void read_llama4(const JsonFile& json, MixtureConfig& result) {
    const std::size_t num_hidden_layers = result.config.num_hidden_layers;
    if (json.has("layer_types")) json.refuse("layer_types", "is not supported for llama4_text");
    result.use_rope = read_use_rope(json, num_hidden_layers);
    const ChunkedAttention chunks{size_or(json, "attention_chunk_size", 8192)};
    for (std::size_t n = 0; n < num_hidden_layers; ++n)
        if (result.use_rope[n]) result.patterns[n] = chunks;
    if (boolean_or(json, "attn_temperature_tuning", true))
        result.temperature_tuning = {positive_or(json, "floor_scale", 8192),
                                     positive_or(json, "attn_scale", 0.1)};
    if (!json.has("rope_scaling")) return;
    if (json.text("rope_scaling.rope_type") != "llama3")
        refuse_value(json, "rope_scaling.rope_type", json.text("rope_scaling.rope_type"),
                     "llama3");
    const Llama3Scaling scaling{
        positive_or(json, "rope_scaling.factor", 0),
        positive_or(json, "rope_scaling.low_freq_factor", 0),
        positive_or(json, "rope_scaling.high_freq_factor", 0),
        positive_or(json, "rope_scaling.original_max_position_embeddings", 0)};
    if (scaling.low_freq_factor > scaling.high_freq_factor)
        json.refuse("rope_scaling.low_freq_factor", "exceeds high_freq_factor");
    result.config.rope_scaling = scaling;
}

// Mixtral: a window in every layer, or in none. gpt-oss: in every second layer, the first one
// included, or as layer_types says.
std::vector<AttentionPattern> read_patterns(const JsonFile& json, MixtureModelType type,
                                            std::size_t num_hidden_layers) {
    const bool gpt_oss = type == MixtureModelType::gpt_oss;
    const std::vector<AttentionPattern> full(num_hidden_layers, FullAttention{});
    const bool may_slide = gpt_oss || type == MixtureModelType::mixtral;
    if (!may_slide || (!json.has("sliding_window") && !gpt_oss)) return full;
    const SlidingWindow window{size_or(json, "sliding_window", 128)};
    if (!json.has("layer_types") || !gpt_oss)
        return layer_patterns(num_hidden_layers, window, gpt_oss ? 2 : 0);
    return read_layer_types(json, window, num_hidden_layers);
}

std::optional<YarnScaling> read_yarn(const JsonFile& json) {
    if (json.is_null("rope_scaling")) return std::nullopt;
    const std::string rope_type =
        json.has("rope_scaling.rope_type") ? json.text("rope_scaling.rope_type") : "yarn";
    if (rope_type != "yarn") refuse_value(json, "rope_scaling.rope_type", rope_type, "yarn");
    for (const char* key : {"rope_scaling.attention_factor", "rope_scaling.mscale",
                            "rope_scaling.mscale_all_dim"})
        if (json.has(key)) json.refuse(key, "is not supported");
    YarnScaling yarn;
    yarn.factor = positive_or(json, "rope_scaling.factor", 32);
    yarn.original_max_position_embeddings =
        positive_or(json, "rope_scaling.original_max_position_embeddings", 4096);
    yarn.beta_fast = positive_or(json, "rope_scaling.beta_fast", 32);
    yarn.beta_slow = positive_or(json, "rope_scaling.beta_slow", 1);
    yarn.truncate = boolean_or(json, "rope_scaling.truncate", json.has("rope_scaling"));
    return yarn;
}

}  // namespace

std::string to_text(MixtureModelType type) {
    for (const auto& [name, named_type] : model_types)
        if (named_type == type) return name;
    throw std::invalid_argument("there is no such model type");
}

bool is_mixture_config(const JsonFile& json) {
    return json.has("model_type") && model_types.contains(json.text("model_type"));
}

MixtureConfig read_mixture_config(const JsonFile& json) try {
    const std::string name = json.text("model_type");
    if (!model_types.contains(name))
        refuse_value(json, "model_type", name, "mixtral, qwen3_moe, gpt_oss and llama4_text");
    MixtureConfig result;
    const MixtureModelType type = result.model_type = model_types.at(name);
    refuse_unsupported(json, type);
    result.config = read_sizes(json, type);
    result.sizes = read_experts(json, type);
    result.is_mixture = read_mixture_layers(json, type, result.config.num_hidden_layers);
    result.patterns = read_patterns(json, type, result.config.num_hidden_layers);
    if (type == MixtureModelType::qwen3_moe)
        result.norm_topk_prob = boolean_or(json, "norm_topk_prob", false);
    if (type == MixtureModelType::gpt_oss) {
        result.yarn = read_yarn(json);
        result.swiglu_limit = positive_or(json, "swiglu_limit", 7);
        result.mxfp4 = json.has("quantization_config");
    }
    if (type == MixtureModelType::llama4_text) read_llama4(json, result);
    return result;
} catch (const ShapeError& error) {
    json.refuse(error.what());
}

}  // namespace llm
