#include "chapters/models/family.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "chapters/models/llama/unread_settings.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// Settings of other families, which would change the layers.
void reject_unsupported(const JsonFile& json, const Family& family) {
    const std::string rotary = "partial_rotary_factor";
    if (!family.partial_rotary && json.has(rotary) && json.number(rotary) != 1)
        json.reject_value(rotary, brief(json.number(rotary)), "1");
    if (json.boolean_or("qkv_bias", false) && !family.qkv_biases)
        json.reject_value("qkv_bias", "true", "false");
    if (json.boolean_or("use_bidirectional_attention", false))
        json.reject_value("use_bidirectional_attention", "true", "false");
}

Config read_common_sizes(const JsonFile& json, const Family& family) {
    Config config = read_sizes(json, family.defaults, [&](const std::string& common) {
        const std::string own = family.key(common);
        return !own.empty() && !json.has(own) && json.has(common) ? common : own;
    });
    if (family.latent_attention)
        config.head_dim = json.size_or("qk_rope_head_dim", 64);  // of the rotary table
    config.qk_norm = family.qk_norm;
    return validate_model(config);
}

// Biases, the activation and RoPE. attention_bias means all four projections.
void read_common(const JsonFile& json, FamilyConfig& config) {
    const Family& family = *config.family;
    const bool all = json.boolean_or("attention_bias", family.has_biases);
    if (all && !family.has_key("attention_bias") && !family.has_biases)
        json.reject_value("attention_bias", "true", "false");
    config.attention_bias = family.qkv_biases ? AttentionBias::qkv
                            : all             ? AttentionBias::qkvo
                                              : AttentionBias::none;
    if (family.has_mlp_bias_key)
        config.mlp_bias = json.boolean_or("mlp_bias", false);
    else if (json.boolean_or("mlp_bias", false))
        json.reject_value("mlp_bias", "true", "false");
    config.activation = read_activation(json, family.activation_key, family.activation);
    if (!family.has_key("rope_theta")) return;
    config.rope_theta =
        read_rope_theta(json, rope_object(json, family.local_rope), family.defaults.rope_theta);
    if (!family.reads_rope_scaling) read_rope_scaling(json, config);
}

}  // namespace

FamilyConfig config_with(const Family& family, const Config& sizes) {
    FamilyConfig config;
    static_cast<Config&>(config) = sizes;
    config.family = &family;
    config.activation = family.activation;
    config.mlp_bias = family.has_biases;
    config.query_pre_attn_scalar = static_cast<Real>(sizes.head_dim);
    config.layers.resize(sizes.num_hidden_layers);
    return config;
}

std::string Family::key(const std::string& common) const {
    const auto renamed = attribute_map.find(common);
    return renamed == attribute_map.end() ? common : renamed->second;
}

const std::vector<const Family*>& families() {
    static const std::vector<const Family*> all = {
        &llama_family(),   &qwen2_family(),       &qwen3_family(),       &gpt2_family(),
        &mistral_family(), &gemma_family(),       &gemma2_family(),      &gemma3_family(),
        &smollm3_family(), &granite_family(),     &olmo2_family(),       &phi3_family(),
        &cohere2_family(), &mixtral_family(),     &qwen3_moe_family(),   &gpt_oss_family(),
        &llama4_family(),  &deepseek_v2_family(), &deepseek_v3_family(), &qwen3_next_family()};
    return all;
}

const Family* find_family(const std::string& model_type) {
    for (const Family* family : families())
        if (family->model_type == model_type) return family;
    return nullptr;
}

std::vector<std::string> all_model_types() {
    std::vector<std::string> types = plain_model_types;
    for (const Family* family : families())
        if (std::find(types.begin(), types.end(), family->model_type) == types.end())
            types.push_back(family->model_type);
    return types;
}

namespace {

// The family of the class in architectures, for files of the first versions of transformers,
// which have no model_type; null if there is none.
const Family* family_of_class(const JsonFile& json) {
    const std::string name = read_head(json).class_name;
    for (const Family* family : families())
        if (family->architecture == name) return family;
    return nullptr;
}

}  // namespace

bool is_family_config(const JsonFile& json) {
    if (is_mini_llm_config(json)) return false;
    if (!json.has("model_type")) return family_of_class(json) != nullptr;
    const std::string type = json.text("model_type");
    const auto& plain = plain_model_types;
    if (std::find(plain.begin(), plain.end(), type) == plain.end()) {
        family_named_in(json);  // throws if there is none
        return true;
    }
    try {
        read_config(json.unread_copy());
    } catch (const UnsupportedValue&) {
        return true;
    }
    return false;
}

const Family& family_named_in(const JsonFile& json) {
    if (const Family* family = json.has("model_type") ? nullptr : family_of_class(json))
        return *family;
    const std::string name = json.text("model_type");
    const Family* const family = find_family(name);
    if (!family) json.reject_value("model_type", name, all_model_types());
    return *family;
}

FamilyConfig read_family_config(const JsonFile& json) {
    return read_family_config(json, family_named_in(json));
}

FamilyConfig read_family_config(const JsonFile& json, const Family& family) try {
    reject_unsupported(json, family);
    FamilyConfig config = config_with(family, read_common_sizes(json, family));
    read_common(json, config);
    family.read(json, config);
    const bool qk_norm = config.qk_norm != QKNormType::none;
    if (json.boolean_or("use_qk_norm", qk_norm) != qk_norm)
        json.reject_value("use_qk_norm", qk_norm ? "false" : "true",
                          qk_norm ? "true" : "false");
    read_head_of_class(json, config);
    check_unread_settings(json);
    return config;
} catch (const UnsupportedValue& error) {
    reject_with_advice(error);
} catch (const ValueError& error) {
    json.reject(error.what());
}

void read_head_of_class(const JsonFile& json, FamilyConfig& config) {
    const HeadOfClass head = read_head(json);
    config.has_lm_head = head.is_language_model;
    config.other_head_parameters =
        head.num_outputs * (config.hidden_size + (head.has_bias ? 1 : 0));
}

JsonMembers config_json(const FamilyConfig& config, DType dtype) {
    const Family& family = *config.family;
    JsonMembers common = common_members(family.model_type, family.architecture, config, dtype);
    common.insert(common.end(),
                  {{"attention_bias", config.attention_bias == AttentionBias::qkvo},
                   {family.activation_key, std::string(config.activation.name)}});
    if (config.mlp_bias != family.has_biases) common.push_back({"mlp_bias", config.mlp_bias});
    JsonMembers json;
    for (const auto& [key, value] : common)
        if (family.has_key(key)) json.push_back({family.key(key), value});
    if (!family.reads_rope_scaling) add_rope_scaling(config, json);
    family.write(config, json);
    return json;
}

FamilyLayerNames hugging_face_layer_names() { return {hugging_face_names.layers}; }

FamilyLayerNames gguf_layer_names() {
    FamilyLayerNames result{gguf_names.layers};
    result.sinks = "attn_sinks.weight";
    result.router = "ffn_gate_inp";
    result.expert = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    result.shared_expert = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    return result;
}

Real score_scale(const FamilyConfig& config) {
    const Real factor =
        config.yarn ? yarn_mscale(config.yarn->factor, config.mscale_all_dim) : Real(1);
    return config.attention_multiplier.value_or(factor * factor /
                                                std::sqrt(config.query_pre_attn_scalar));
}

std::uint64_t cached_numbers(const FamilyConfig& config) {
    if (config.latent) return config.latent->kv_lora_rank + config.latent->qk_rope_head_dim;
    return std::uint64_t{2} * config.num_key_value_heads * config.head_dim;
}

std::size_t rotary_dim(const FamilyConfig& config) {
    // A factor that was divided by head_dim may be a little too small.
    return static_cast<std::size_t>(double(config.head_dim) * config.partial_rotary_factor +
                                    1e-6);
}

void set_patterns(FamilyConfig& config, const std::vector<AttentionPattern>& patterns) {
    config.layers.resize(patterns.size());
    for (std::size_t n = 0; n < patterns.size(); ++n) config.layers[n].pattern = patterns[n];
}

std::optional<std::size_t> sliding_window(const FamilyConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (const auto* sliding = std::get_if<SlidingWindow>(&layer.pattern))
            return sliding->window;
    return std::nullopt;
}

void reject_other_query_widths(const FamilyConfig& config) {
    require(config.num_attention_heads * config.head_dim == config.hidden_size,
            "export: llama.cpp's {} has {} heads of {} for a hidden size of {}",
            config.family->gguf_architecture, config.num_attention_heads,
            config.hidden_size / config.num_attention_heads, config.hidden_size);
}

void reject_windows_of_llama(const FamilyConfig& config) {
    const std::size_t context = config.max_position_embeddings;
    for (const LayerConfig& layer : config.layers) {
        const auto* sliding = std::get_if<SlidingWindow>(&layer.pattern);
        require(
            !sliding || sliding->window >= context,
            "export: llama.cpp's {} has no window: {} tokens do not fit into a window of {}",
            config.family->gguf_architecture, context, sliding ? sliding->window : 0);
    }
}

}  // namespace llm::models
