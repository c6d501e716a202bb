#include "chapters/models/family.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/models/llama/config_json.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void reject_unsupported(const JsonFile& json, const Family& family) {
    const std::string key = family.activation_key, activation(family.activation.name);
    if (json.has(key) && json.text(key) != activation)
        json.reject_value(key, json.text(key), activation);
    if (json.boolean_or("attention_bias", family.has_biases) != family.has_biases)
        json.reject_value("attention_bias", family.has_biases ? "false" : "true",
                          family.has_biases ? "true" : "false");
    for (const char* flag : {"mlp_bias", "use_bidirectional_attention", "use_sliding_window"})
        if (json.boolean_or(flag, false)) json.reject_value(flag, "true", "false");
    if (json.has("clip_qkv")) json.reject("clip_qkv", "is not supported");
    const std::string shared = "shared_expert_intermediate_size";
    if (json.has(shared) && family.names.shared_gate.empty())
        json.reject(shared, "is not supported");
    for (const char* of_deepseek : {"n_shared_experts", "kv_lora_rank"})
        if (json.has(of_deepseek) && !family.latent_attention)
            json.reject(of_deepseek, "is not supported");
    const std::string rotary = "partial_rotary_factor";
    if (!family.partial_rotary && json.has(rotary) && json.number(rotary) != 1)
        json.reject_value(rotary, brief(json.number(rotary)), "1");
    const std::string rope = rope_object(json, family.local_rope);
    if (json.has(rope) && !family.reads_rope_scaling && read_rope_type(json, rope) != "default")
        json.reject(rope, "is not supported for " + family.model_type);
}

void read_sizes(const JsonFile& json, const Family& family, Config& config) {
    const Family::Defaults& defaults = family.defaults;
    const auto size = [&](const std::string& key) { return json.size(family.key(key)); };
    config.hidden_size = size("hidden_size");
    config.intermediate_size = defaults.mlp_ratio > 0
                                   ? json.size_or(family.key("intermediate_size"),
                                                  defaults.mlp_ratio * config.hidden_size)
                                   : size("intermediate_size");
    config.num_hidden_layers = size("num_hidden_layers");
    config.num_attention_heads = size("num_attention_heads");
    config.num_key_value_heads = family.has_key("num_key_value_heads")
                                     ? size("num_key_value_heads")
                                     : config.num_attention_heads;
    if (family.latent_attention)
        config.head_dim = json.size_or("qk_rope_head_dim", 64);  // of the rotary table
    else if (family.has_key("head_dim"))
        config.head_dim = json.size_or("head_dim", defaults.head_dim);
    config.vocab_size = size("vocab_size");
    config.max_position_embeddings = size("max_position_embeddings");
    config.rms_norm_eps =
        Real(json.positive_or(family.key("rms_norm_eps"), defaults.rms_norm_eps));
    if (family.has_key("rope_theta"))
        config.rope_theta =
            read_rope_theta(json, rope_object(json, family.local_rope), defaults.rope_theta);
    config.tie_word_embeddings =
        json.boolean_or("tie_word_embeddings", defaults.tie_word_embeddings);
    config.qk_norm = family.qk_norm;
    config.attention_bias = family.has_biases ? AttentionBias::qkvo : AttentionBias::none;
    config = validate_model(config);
}

}  // namespace

std::string Family::key(const std::string& common) const {
    const auto renamed = attribute_map.find(common);
    return renamed == attribute_map.end() ? common : renamed->second;
}

const std::vector<const Family*>& families() {
    static const std::vector<const Family*> all = {
        &gpt2_family(),      &mistral_family(), &gemma_family(),       &gemma2_family(),
        &gemma3_family(),    &smollm3_family(), &granite_family(),     &olmo2_family(),
        &phi3_family(),      &cohere2_family(), &mixtral_family(),     &qwen3_moe_family(),
        &gpt_oss_family(),   &llama4_family(),  &deepseek_v2_family(), &deepseek_v3_family(),
        &qwen3_next_family()};
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

bool is_family_config(const JsonFile& json) {
    if (!json.has("model_type")) return false;
    const std::string type = json.text("model_type");
    const auto& plain = plain_model_types;
    if (type != "mistral" && std::find(plain.begin(), plain.end(), type) != plain.end())
        return false;
    const Family& family = family_named_in(json);
    if (&family != &mistral_family()) return true;
    FamilyConfig config;
    config.num_hidden_layers = json.size("num_hidden_layers");
    family.read(json, config);
    const std::size_t num_positions = json.size("max_position_embeddings");
    return sliding_window(config).value_or(num_positions) < num_positions;
}

const Family& family_named_in(const JsonFile& json) {
    const std::string name = json.text("model_type");
    const Family* const family = find_family(name);
    if (!family) json.reject_value("model_type", name, all_model_types());
    return *family;
}

FamilyConfig read_family_config(const JsonFile& json) {
    return read_family_config(json, family_named_in(json));
}

FamilyConfig read_family_config(const JsonFile& json, const Family& family) try {
    FamilyConfig config;
    config.family = &family;
    reject_unsupported(json, family);
    read_sizes(json, family, config);
    config.query_pre_attn_scalar = static_cast<Real>(config.head_dim);
    family.read(json, config);
    if (json.has("quantization_config") && !config.mxfp4)
        json.reject("quantization_config", "is not supported");
    json.reject_unread(unused_config_keys);
    return config;
} catch (const ValueError& error) {
    json.reject(error.what());
}

JsonMembers config_json(const FamilyConfig& config, DType dtype) {
    const Family& family = *config.family;
    JsonMembers common = common_members(family.model_type, family.architecture, config, dtype);
    common.insert(common.end(), {{"attention_bias", family.has_biases},
                                 {family.activation_key, std::string(family.activation.name)}});
    JsonMembers json;
    for (const auto& [key, value] : common)
        if (family.has_key(key)) json.push_back({family.key(key), value});
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
