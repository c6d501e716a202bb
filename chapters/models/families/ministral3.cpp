// Ministral 3, Devstral 2: a Llama with YaRN and a temperature of the queries, also in layers
// with RoPE. Source: Hugging Face, configuration_ministral3.py, modeling_ministral3.py;
// llama.cpp, mistral3.cpp.
#include <algorithm>

#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// From position 0 on; β = 0 means none.
void set_temperature(FamilyConfig& config, Real length, double beta) {
    for (LayerConfig& layer : config.layers)
        if (beta != 0) attention_of(layer)->temperature_tuning = {length, Real(beta), 0};
}

// Without the object, YaRN and the temperature have these numbers.
void read_temperature(const JsonFile& json, FamilyConfig& config) {
    const std::string inside = rope_object(json, false),
                      length = inside + ".original_max_position_embeddings",
                      beta = inside + ".llama_4_scaling_beta";
    if (!json.has(inside)) {
        YarnScaling yarn{16, 16384};
        yarn.attention_factor = Real(1);
        set_rope_scaling(config, yarn);
        return set_temperature(config, 16384, 0.1);
    }
    json.ignore(inside + ".max_position_embeddings");
    set_temperature(config,
                    Real(json.positive_or(length, double(config.max_position_embeddings))),
                    json.has(beta) ? json.number(beta) : 0);
}

void read_ministral3(const JsonFile& json, FamilyConfig& config) {
    read_temperature(json, config);
    if (json.has("sliding_window") || json.has("layer_types")) read_patterns(json, 0, config);
}

void write_ministral3(const FamilyConfig& config, JsonMembers& json) {
    add_windows(config, json);
    if (std::holds_alternative<std::monostate>(main_rope(config)->scaling))
        json.push_back({"rope_scaling.rope_type", std::string("default")});
    const auto& tuning = first_attention(config)->temperature_tuning;
    if (!tuning) return;
    json.push_back(
        {"rope_scaling.original_max_position_embeddings", double(tuning->floor_scale)});
    json.push_back({"rope_scaling.llama_4_scaling_beta", double(tuning->attn_scale)});
}

void check_ministral3_gguf(const FamilyConfig& config) {
    reject_windows_of_llama(config);
    const auto* yarn = std::get_if<YarnScaling>(&main_rope(config)->scaling);
    require(!yarn || yarn->truncate, "export: llama.cpp rounds YaRN's limits to whole pairs");
    const auto& tuning = first_attention(config)->temperature_tuning;
    const Real length =
        yarn ? yarn->original_max_position_embeddings : Real(config.max_position_embeddings);
    require(!tuning || tuning->floor_scale == length,
            "export: llama.cpp's mistral3 has a temperature that grows every {} tokens",
            std::size_t(length));
}

const std::string scaling = "rope.scaling.", log_multiplier = scaling + "yarn_log_multiplier",
                  attn_factor = scaling + "attn_factor", fast = scaling + "yarn_beta_fast",
                  slow = scaling + "yarn_beta_slow",
                  temperature = "attention.temperature_scale";

void add_ministral3_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_yarn(config, metadata);
    const auto add = [&](const std::string& key, Real number) {
        add_gguf_number(config, key, double(number), metadata);
    };
    if (const auto& tuning = first_attention(config)->temperature_tuning)
        add(temperature, tuning->attn_scale);
    const auto* yarn = std::get_if<YarnScaling>(&main_rope(config)->scaling);
    if (!yarn) return;
    add(fast, yarn->beta_fast);
    add(slow, yarn->beta_slow);
    // Converters write mscale_all_dim; where mscale is the same, cosine and sine stay.
    const Real factor = yarn_attention_factor(*yarn);
    if (factor == 1) return add(log_multiplier, 1);
    add(attn_factor, factor / yarn_mscale(yarn->factor, 1));
}

// llama.cpp's mscale is 1.
YarnScaling read_gguf_yarn_of_mistral3(const GgufSettings& gguf, YarnScaling yarn) {
    const auto number = [&](const std::string& key, Real otherwise) {
        const bool there = gguf.file.any_number(gguf.full(key)).value_or(0) != 0;
        return there ? gguf.positive(key) : otherwise;
    };
    yarn.beta_fast = number(fast, 32);
    yarn.beta_slow = number(slow, 1);
    yarn.attention_factor = yarn_mscale(yarn.factor, 1) /
                            yarn_mscale(yarn.factor, number(log_multiplier, 0)) *
                            number(attn_factor, 1);
    return yarn;
}

void read_ministral3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    Real length = Real(config.max_position_embeddings);
    if (const auto yarn = read_gguf_yarn(gguf)) {
        set_rope_scaling(config, read_gguf_yarn_of_mistral3(gguf, *yarn));
        length = yarn->original_max_position_embeddings;
    }
    if (gguf.has(temperature))
        set_temperature(config, length, gguf.file.number(gguf.full(temperature)));
}

}  // namespace

const Family& ministral3_family() {
    static const Family family{
        .model_type = "ministral3",
        .architecture = "Ministral3ForCausalLM",
        .gguf_architecture = "mistral3",
        .names = hugging_face_layer_names(),
        .gguf_names = gguf_layer_names(),
        .gguf_layout = RopeLayout::interleaved,
        .attribute_map = {{"attention_bias", ""}},
        .defaults = {131072, 4096, 14336, 34, 32, 8, 262144, 128, 1e-5, 1'000'000},
        .read = read_ministral3,
        .write = write_ministral3,
        .check_gguf = check_ministral3_gguf,
        .add_gguf = add_ministral3_gguf,
        .read_gguf = read_ministral3_gguf};
    return family;
}

}  // namespace llm::models
