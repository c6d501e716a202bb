// OLMo 3: OLMo 2's layers, three with a window to one with full attention; YaRN is for full
// attention alone. Source: Hugging Face, modeling_olmo3.py (4.57; 5.0 to 5.12 have one RoPE for
// all layers); llama.cpp, olmo2.cpp.
#include <algorithm>
#include <cmath>

#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

RopeParameters without_scaling(RopeParameters rope) {
    rope.scaling = std::monostate{};
    return rope;
}

// RoPE without an object for each type of layers, which is read after this, is that of full
// attention; layers with a window have its theta.
void read_olmo3(const JsonFile& json, FamilyConfig& config) {
    read_patterns(json, 4, config);
    for (LayerConfig& layer : config.layers)
        if (window_of(layer)) *rope_of(layer) = without_scaling(*rope_of(layer));
}

// The first layer with a window, or without.
auto layer_with(const FamilyConfig& config, bool window) {
    return std::ranges::find_if(
        config.layers, [=](const auto& layer) { return bool(window_of(layer)) == window; });
}

void add_rope(const std::string& type, const RopeParameters& rope, JsonMembers& json) {
    JsonMembers members = {{"rope_scaling.rope_type", std::string("default")},
                           {"rope_scaling.rope_theta", double(rope.rope_theta)}};
    add_rope_scaling(rope, members);
    for (const auto& [key, value] : members)
        json.push_back({"rope_parameters." + type + key.substr(key.find('.')), value});
}

// With an object for each type of layers if windows have more than the theta of the others.
void write_olmo3(const FamilyConfig& config, JsonMembers& json) {
    add_windows(config, json);
    const auto full = layer_with(config, false), window = layer_with(config, true),
               end = config.layers.end();
    if (window == end || *rope_of(*window) == without_scaling(*main_rope(config))) return;
    std::erase_if(json, [](const auto& member) { return member.key.starts_with("rope_"); });
    if (full != end) add_rope("full_attention", *rope_of(*full), json);
    add_rope("sliding_attention", *rope_of(*window), json);
}

void check_olmo3_gguf(const FamilyConfig& config) {
    olmo2_family().check_gguf(config);
    require(sliding_window(config).has_value(), "export: an olmo3 without windows is not read");
    const RopeParameters& main = *main_rope(config);
    for (const LayerConfig& layer : config.layers)
        require(!window_of(layer) || *rope_of(layer) == without_scaling(main),
                "export: llama.cpp's olmo2 has one theta, and no scaling in windows");
    const auto* yarn = std::get_if<YarnScaling>(&main.scaling);
    require(!yarn || *yarn == YarnScaling{yarn->factor, yarn->original_max_position_embeddings},
            "export: llama.cpp's olmo2 rounds YaRN's limits, of 32 and 1 rotations, to whole "
            "pairs, and has its attention factor");
}

void add_olmo3_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    std::vector<bool> pattern;
    for (const LayerConfig& layer : config.layers) pattern.push_back(bool(window_of(layer)));
    metadata.emplace_back("olmo2.attention.sliding_window_pattern", pattern);
    add_gguf_window(config, metadata);
    add_gguf_yarn(config, metadata);
}

// The pattern is true for a window, for each layer; or a number: every so many-th has none.
void read_pattern(const GgufSettings& gguf, FamilyConfig& config) {
    const std::string key = gguf.full("attention.sliding_window_pattern");
    const std::size_t num_layers = config.num_hidden_layers;
    if (!gguf.file.has(key) || gguf.file.any_number(key))
        return read_gguf_windows(gguf, gguf.file.has(key) ? gguf.file.size(key) : 4, config);
    const std::vector<bool> windows = gguf.file.flags(key);
    if (windows.size() != num_layers) gguf.file.reject(key + " must have one flag per layer");
    std::vector<AttentionPattern> patterns(num_layers, FullAttention{});
    for (std::size_t n = 0; n < num_layers; ++n)
        if (windows[n]) patterns[n] = SlidingWindow{gguf.size("attention.sliding_window")};
    set_patterns(config, patterns);
}

// Converters write attention_factor under two names: llama.cpp multiplies YaRN's own factor by
// the first and does not read the second. Published files have YaRN's own there.
void read_olmo3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_pattern(gguf, config);
    const std::optional<YarnScaling> yarn = read_gguf_yarn(gguf);
    if (!yarn) return;
    for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"}) {
        const double factor = gguf.file.any_number(gguf.full(key)).value_or(0);
        if (std::abs(factor - double(yarn_attention_factor(*yarn))) < 1e-5) gguf.positive(key);
    }
    for (LayerConfig& layer : config.layers)
        if (!window_of(layer)) rope_of(layer)->scaling = *yarn;
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
