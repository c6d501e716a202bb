// OLMo 3: OLMo 2's layers, three with a window to one with full attention; YaRN is for full
// attention alone. Source: Hugging Face, modeling_olmo3.py (4.57; 5.0 to 5.12 have one RoPE for
// all layers).
#include "chapters/models/families/olmo3_gguf.hpp"

#include <algorithm>

namespace llm::models {

RopeParameters without_scaling(RopeParameters rope) {
    rope.scaling = std::monostate{};
    return rope;
}

namespace {

// RoPE without an object for each type of layers, which is read after this, is that of full
// attention; layers with a window have its theta.
void read_olmo3(const JsonFile& json, FamilyConfig& config) {
    read_patterns(json, 4, config);
    for (LayerConfig& layer : config.layers)
        if (window_of(layer)) *rope_of(layer) = without_scaling(*rope_of(layer));
}

// The first layer with a window, or without.
auto layer_with(const FamilyConfig& config, bool window) {
    return std::find_if(
        config.layers.begin(), config.layers.end(),
        [=](const LayerConfig& layer) { return window_of(layer).has_value() == window; });
}

void add_rope(const std::string& type, const RopeParameters& rope, JsonMembers& json) {
    JsonMembers members = {{"rope_scaling.rope_type", std::string("default")},
                           {"rope_scaling.rope_theta", double(rope.rope_theta)}};
    add_rope_scaling(rope, members);
    for (const auto& [key, value] : members)
        json.push_back({"rope_parameters." + type + key.substr(key.find('.')), value});
}

// With an object for each type of layers, unless windows have plain RoPE with the same theta.
void write_olmo3(const FamilyConfig& config, JsonMembers& json) {
    add_windows(config, json);
    const auto full = layer_with(config, false), window = layer_with(config, true),
               end = config.layers.end();
    if (window == end || *rope_of(*window) == without_scaling(*main_rope(config))) return;
    std::erase_if(json, [](const auto& member) { return member.key.starts_with("rope_"); });
    if (full != end) add_rope("full_attention", *rope_of(*full), json);
    add_rope("sliding_attention", *rope_of(*window), json);
}

}  // namespace

const Family& olmo3_family() {
    static const Family family = [] {
        Family olmo3 = olmo2_family();
        olmo3.model_type = "olmo3";
        olmo3.architecture = "Olmo3ForCausalLM";
        olmo3.read = read_olmo3;
        olmo3.write = write_olmo3;
        olmo3.check_gguf = check_olmo3_gguf;
        olmo3.add_gguf = add_olmo3_gguf;
        olmo3.read_gguf = read_olmo3_gguf;
        return olmo3;
    }();
    return family;
}

}  // namespace llm::models
