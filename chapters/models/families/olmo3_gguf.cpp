// OLMo 3 in GGUF files. Source: llama.cpp, olmo2.cpp and conversion/olmo.py.
#include "chapters/models/families/olmo3_gguf.hpp"

#include <cmath>

namespace llm::models {

namespace {

// Whether this is the factor of cosine and sine that follows from YaRN's factor.
bool is_default_factor(double attention_factor, const YarnScaling& yarn) {
    const Real expected = yarn_attention_factor(YarnScaling{yarn.factor});
    return std::abs(attention_factor - double(expected)) < 1e-5;
}

}  // namespace

void check_olmo3_gguf(const FamilyConfig& config) {
    olmo2_family().check_gguf(config);
    require(sliding_window(config).has_value(),
            "export: no olmo3 without windows is written as GGUF");
    const RopeParameters& main = *main_rope(config);
    for (const LayerConfig& layer : config.layers)
        require(!window_of(layer) || *rope_of(layer) == without_scaling(main),
                "export: llama.cpp's olmo2 has one theta, and no scaling in windows");
    const auto* yarn = std::get_if<YarnScaling>(&main.scaling);
    require(!yarn || (yarn->truncate && yarn->beta_fast == 32 && yarn->beta_slow == 1),
            "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, to whole pairs");
    require(!yarn || is_default_factor(double(yarn_attention_factor(*yarn)), *yarn),
            "export: llama.cpp's olmo2 has an attention_factor of 0.1 ln(factor) + 1");
}

void add_olmo3_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    std::vector<bool> pattern;
    for (const LayerConfig& layer : config.layers) pattern.push_back(bool(window_of(layer)));
    metadata.emplace_back("olmo2.attention.sliding_window_pattern", pattern);
    add_gguf_window(config, metadata);
    add_gguf_yarn(config, metadata);
}

namespace {

// The pattern is true for a window, for each layer; or a number: every so many-th has none.
void read_pattern(const GgufSettings& gguf, FamilyConfig& config) {
    const std::string key = "attention.sliding_window_pattern";
    if (!gguf.has(key)) return read_gguf_windows(gguf, 4, config);
    if (gguf.file.any_number(gguf.full(key)))
        return read_gguf_windows(gguf, gguf.size(key), config);
    const std::vector<bool> windows = read_gguf_flags(gguf, key, config.num_hidden_layers);
    std::vector<AttentionPattern> patterns(windows.size(), FullAttention{});
    for (std::size_t n = 0; n < windows.size(); ++n)
        if (windows[n]) patterns[n] = SlidingWindow{gguf.size("attention.sliding_window")};
    set_patterns(config, patterns);
}

}  // namespace

// Converters have written attention_factor under two names. llama.cpp multiplies the default by
// the first and does not read the second. In published files, both are the default itself.
void read_olmo3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_pattern(gguf, config);
    const std::optional<YarnScaling> yarn = read_gguf_yarn(gguf);
    if (!yarn) return;
    for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"}) {
        const auto factor = gguf.file.any_number(gguf.full(key));
        if (factor && is_default_factor(*factor, *yarn)) gguf.positive(key);
    }
    for (LayerConfig& layer : config.layers)
        if (!window_of(layer)) rope_of(layer)->scaling = *yarn;
}

}  // namespace llm::models
