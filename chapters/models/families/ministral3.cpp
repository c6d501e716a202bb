// Ministral 3 and Devstral 2: a Llama with YaRN and a temperature of the queries. Source:
// Hugging Face, configuration_ministral3.py, modeling_ministral3.py.
#include "chapters/models/families/ministral3_gguf.hpp"
#include "chapters/models/llama/rope_keys.hpp"

namespace llm::models {

void set_temperature(FamilyConfig& config, Real length, double beta) {
    for (LayerConfig& layer : config.layers)
        if (beta != 0) attention_of(layer)->temperature_tuning = {length, Real(beta), 0};
}

namespace {

// Without the object, YaRN and the temperature are those of the class.
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
