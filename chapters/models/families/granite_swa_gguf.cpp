// Source: llama.cpp, granite-swa.cpp.
#include "chapters/models/families/granite_swa_gguf.hpp"

#include "common/output/show.hpp"

namespace llm::models {

void check_granite_swa_gguf(const FamilyConfig& config) {
    require(sliding_window(config).has_value(), "export: llama.cpp's granite_swa has a window");
    require(main_rope(config), "export: llama.cpp's granite_swa has RoPE in a layer");
    for (const double theta : layer_thetas(config))
        require(theta == 0 || Real(theta) == main_rope(config)->rope_theta,
                "export: llama.cpp's granite_swa has one rope_theta: {} and {}",
                brief(double(main_rope(config)->rope_theta)), brief(theta));
}

void add_granite_swa_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    granite_family().add_gguf(config, metadata);
    add_gguf_window(config, metadata);
    std::vector<bool> windows, ropes;
    for (const LayerConfig& layer : config.layers) {
        windows.push_back(window_of(layer).has_value());
        ropes.push_back(rope_of(layer) != nullptr);
    }
    metadata.emplace_back("granite_swa.attention.sliding_window_pattern", windows);
    metadata.emplace_back("granite_swa.attention.rope_pattern", ropes);
}

void read_granite_swa_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    granite_family().read_gguf(gguf, config);
    const std::size_t num_layers = config.layers.size();
    const SlidingWindow window{gguf.size("attention.sliding_window")};
    const std::string windows = "attention.sliding_window_pattern",
                      ropes = "attention.rope_pattern";
    const std::vector<bool> has_window = read_gguf_flags(gguf, windows, num_layers);
    const std::vector<bool> has_rope = gguf.has(ropes)
                                           ? read_gguf_flags(gguf, ropes, num_layers)
                                           : std::vector<bool>(num_layers, true);
    for (std::size_t n = 0; n < num_layers; ++n) {
        AttentionConfig& attention = *attention_of(config.layers[n]);
        if (has_window[n]) attention.pattern = window;
        if (!has_rope[n]) attention.rope.reset();
    }
}

}  // namespace llm::models
