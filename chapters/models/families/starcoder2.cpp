// StarCoder2: a Llama whose norms are LayerNorms, whose MLP has no gate, and whose matrices
// have biases; a sliding window in every layer. Source: Hugging Face, modeling_starcoder2.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void build_starcoder2(FamilyConfig& config) {
    config.norm_type = NormType::layer_norm;
    for (LayerConfig& layer : config.layers) {
        attention_of(layer)->bias = AttentionBias::qkvo;
        layer.mlp = MlpConfig{config.intermediate_size, GELUTanh, true, false};
    }
}

void read_starcoder2(const JsonFile& json, FamilyConfig& config) {
    // Keys that the published files have and transformers does not read.
    for (const auto& [key, supported] :
         {std::pair{"mlp_type", "default"}, {"norm_type", "layer_norm"}})
        if (json.has(key) && json.text(key) != supported)
            json.reject_value(key, json.text(key), supported);
    // use_bias, as that of attention; the norms have their biases always.
    for (LayerConfig& layer : config.layers)
        mlp_of(layer)->bias = attention_of(layer)->bias == AttentionBias::qkvo;
    if (json.has("sliding_window"))
        set_patterns(config, {config.num_hidden_layers,
                              AttentionPattern{SlidingWindow{json.size("sliding_window")}}});
}

void write_starcoder2(const FamilyConfig& config, JsonMembers& json) {
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
}

void check_starcoder2_gguf(const FamilyConfig& config) {
    reject_windows_of_llama(config);
    reject_other_query_widths(config);
}

}  // namespace

const Family& starcoder2_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names();
        names.mlp = {"", "mlp.c_fc", "mlp.c_proj"};
        return Family{
            .model_type = "starcoder2",
            .architecture = "Starcoder2ForCausalLM",
            .gguf_architecture = "starcoder2",
            .names = names,
            .gguf_names = gguf_layer_names(),
            .attribute_map = {{"rms_norm_eps", "norm_epsilon"}, {"attention_bias", "use_bias"}},
            .defaults = {49152, 3072, 12288, 30, 24, 2, 4096, 0, 1e-5, 10'000, true},
            .build = build_starcoder2,
            .read = read_starcoder2,
            .write = write_starcoder2,
            .check_gguf = check_starcoder2_gguf};
    }();
    return family;
}

}  // namespace llm::models
