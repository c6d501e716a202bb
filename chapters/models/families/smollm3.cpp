// SmolLM3: a Llama in which every fourth layer has no RoPE. Source: Hugging Face,
// modeling_smollm3.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void read_smollm3(const JsonFile& json, FamilyConfig& config) {
    read_mlp_bias(json, config);
    read_use_rope(json, config);
    const bool slides = json.boolean_or("use_sliding_window", false);
    const SlidingWindow window{json.size_or("sliding_window", config.max_position_embeddings)};
    // With use_sliding_window, the layers that layer_types lists, or those without RoPE, have a
    // window.
    if (json.has("layer_types"))
        set_patterns(config, read_layer_types(json, window, config.num_hidden_layers));
    else if (slides && json.has("sliding_window"))
        for (LayerConfig& layer : config.layers)
            if (!rope_of(layer)) attention_of(layer)->pattern = window;
    if (!slides && sliding_window(config))
        json.reject_value("layer_types", "sliding_attention", "full_attention");
}

void write_smollm3(const FamilyConfig& config, JsonMembers& json) {
    add_mlp_bias(config, json);
    json.push_back({"no_rope_layers", no_rope_layers(config)});
    add_windows(config, json);
    if (sliding_window(config)) json.push_back({"use_sliding_window", true});
}

void check_smollm3_gguf(const FamilyConfig& config) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(bool(rope_of(config.layers[n])) == ((n + 1) % 4 != 0),
                "export: llama.cpp's smollm3 has no RoPE in layers 3, 7, ..., and RoPE in all "
                "others");
    require(!sliding_window(config), "export: llama.cpp's smollm3 has no windows");
}

void read_smollm3_gguf(const GgufSettings&, FamilyConfig& config) {
    for (std::size_t n = 3; n < config.layers.size(); n += 4)
        attention_of(config.layers[n])->rope.reset();
}

}  // namespace

const Family& smollm3_family() {
    static const Family family{
        .model_type = "smollm3",
        .architecture = "SmolLM3ForCausalLM",
        .gguf_architecture = "smollm3",
        .names = hugging_face_layer_names(),
        .gguf_names = gguf_layer_names(),
        .gguf_layout = RopeLayout::interleaved,
        .defaults = {128256, 2048, 11008, 36, 16, 4, 32768, 0, 1e-6, 2'000'000, true},
        .read = read_smollm3,
        .write = write_smollm3,
        .check_gguf = check_smollm3_gguf,
        .read_gguf = read_smollm3_gguf};
    return family;
}

}  // namespace llm::models
