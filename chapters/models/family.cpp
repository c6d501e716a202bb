#include "chapters/models/family.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "chapters/models/llama/unread_settings.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

Config read_common_sizes(const JsonFile& json, const Family& family) {
    Config sizes = read_sizes(json, family.defaults, [&](const std::string& common) {
        const std::string own = key_of(family, common);
        return !own.empty() && !json.has(own) && json.has(common) ? common : own;
    });
    if (sizes.num_hidden_layers > most_layers)
        json.reject(key_of(family, "num_hidden_layers"), "must be at most " +
                                                             to_text(most_layers) + ", not " +
                                                             to_text(sizes.num_hidden_layers));
    return validate_model(sizes);
}

// Biases, the activation and RoPE. attention_bias means all four projections.
void read_common(const JsonFile& json, FamilyConfig& config) {
    const Family& family = *config.family;
    const std::string bias_key = key_of(family, "attention_bias"),
                      rope =
                          key_of(family, "rope_theta").empty() ? "" : rope_object(json, true);
    // One object for each type of layers is read by the families that have it.
    const bool one_rope = !rope.empty() && !rope.ends_with(".full_attention");
    for (LayerConfig& layer : config.layers) {
        if (AttentionConfig* attention = attention_of(layer);
            attention && !bias_key.empty() && attention->bias != AttentionBias::qkv)
            attention->bias = json.boolean_or(bias_key, attention->bias == AttentionBias::qkvo)
                                  ? AttentionBias::qkvo
                                  : AttentionBias::none;
        if (MlpConfig* mlp = mlp_of(layer))
            mlp->activation =
                read_activation(json, key_of(family, "hidden_act"), mlp->activation);
        if (RopeParameters* parameters = one_rope ? rope_of(layer) : nullptr)
            *parameters = read_rope(json, rope, config, *parameters);
    }
}

// Llama's layer of these sizes.
LayerConfig llama_layer(const Config& sizes) {
    const std::size_t D = sizes.head_dim;
    AttentionConfig attention{sizes.num_attention_heads, sizes.num_key_value_heads, D};
    attention.rope = RopeParameters{sizes.rope_theta, D, D};
    if (sizes.rope_scaling)
        std::visit([&](const auto& scaling) { attention.rope->scaling = scaling; },
                   *sizes.rope_scaling);
    attention.bias = sizes.attention_bias;
    attention.scale = 1 / std::sqrt(double(D));
    return {attention, MlpConfig{sizes.intermediate_size}};
}

}  // namespace

FamilyConfig config_with(const Family& family, const Config& sizes) {
    FamilyConfig config;
    static_cast<Config&>(config) = sizes;
    config.family = &family;
    config.layers.assign(sizes.num_hidden_layers, llama_layer(sizes));
    family.build(config);
    return config;
}

std::string key_of(const Family& family, const std::string& common) {
    const auto renamed = family.attribute_map.find(common);
    return renamed == family.attribute_map.end() ? common : renamed->second;
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
    for (const EncoderFamily* family : encoder_families()) types.push_back(family->model_type);
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
    Config sizes = read_common_sizes(json, family);
    if (family.defaults.rope_theta > 0) sizes.rope_theta = Real(family.defaults.rope_theta);
    FamilyConfig config = config_with(family, sizes);
    read_common(json, config);
    family.read(json, config);
    read_rope_by_layer_type(json, config);
    if (const RopeParameters* rope = main_rope(config)) config.rope_theta = rope->rope_theta;
    const AttentionConfig* attention = first_attention(config);
    const bool qk_norm = attention && attention->qk_norm != QKNormType::none;
    if (json.boolean_or("use_qk_norm", qk_norm) != qk_norm)
        json.reject_value("use_qk_norm", qk_norm ? "false" : "true",
                          qk_norm ? "true" : "false");
    read_head_of_class(json, config);
    check_unread_settings(json);
    return config;
} catch (...) {
    rethrow_as_rejection(json);
}

void read_head_of_class(const JsonFile& json, FamilyConfig& config) {
    const HeadOfClass head = read_head(json);
    config.has_lm_head = head.is_language_model;
    config.other_head_parameters =
        head.num_outputs * (config.hidden_size + (head.has_bias ? 1 : 0));
}

namespace {

// The settings of the layers that all families write.
JsonMembers layer_members(const FamilyConfig& config) {
    JsonMembers members;
    if (const AttentionConfig* attention = first_attention(config))
        members.push_back({"attention_bias", attention->bias == AttentionBias::qkvo});
    if (config.layers.empty()) return members;
    const LayerConfig& first = config.layers.front();
    const MlpConfig* dense = mlp_of(first);
    const Activation& activation = dense ? dense->activation : moe_of(first)->activation;
    members.push_back({"hidden_act", std::string(activation.name)});
    return members;
}

}  // namespace

JsonMembers config_json(const FamilyConfig& config, DType dtype) {
    const Family& family = *config.family;
    JsonMembers common = common_members(family.model_type, family.architecture, config, dtype);
    for (JsonMembers::value_type& member : layer_members(config))
        common.push_back(std::move(member));
    JsonMembers json;
    for (const auto& [key, value] : common)
        if (const std::string own = key_of(family, key); !own.empty())
            json.push_back({own, value});
    if (const RopeParameters* rope = main_rope(config)) add_rope_scaling(*rope, json);
    family.write(config, json);
    return json;
}

const AttentionConfig* first_attention(const FamilyConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (const AttentionConfig* attention = attention_of(layer)) return attention;
    return nullptr;
}

const RopeParameters* main_rope(const FamilyConfig& config) {
    const RopeParameters* of_window = nullptr;
    for (const LayerConfig& layer : config.layers) {
        const RopeParameters* rope = rope_of(layer);
        if (rope && !window_of(layer)) return rope;
        if (!of_window) of_window = rope;
    }
    return of_window;
}

const MoeConfig* first_moe(const FamilyConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (const MoeConfig* moe = moe_of(layer)) return moe;
    return nullptr;
}

std::optional<std::size_t> sliding_window(const FamilyConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (const auto window = window_of(layer)) return window;
    return std::nullopt;
}

}  // namespace llm::models
