// Gemma 3 (text): Gemma 2 without soft caps and with a QK norm; every sixth layer sees all, the
// others have a window and a theta of their own. Source: Hugging Face, modeling_gemma3.py.
#include "chapters/models/families/gemma_common.hpp"

namespace llm::models {
namespace {

void build_gemma3(FamilyConfig& config) {
    build_gemma(config);
    config.norm_placement = NormPlacement::sandwich;
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::with_weights;
}

// The theta of layers with a window, which have no scaling.
void set_local_theta(FamilyConfig& config, Real theta) {
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer); rope && window_of(layer)) {
            rope->rope_theta = theta;
            rope->scaling = std::monostate{};
        }
}

void read_gemma3(const JsonFile& json, FamilyConfig& config) {
    const std::string old_key = "_sliding_window_pattern", key = "sliding_window_pattern";
    read_windows_and_scores(json, json.has(old_key) ? json.size(old_key) : json.size_or(key, 6),
                            {}, {}, config);
    set_local_theta(config, Real(json.positive_or("rope_local_base_freq", 10'000)));
}

void write_gemma3(const FamilyConfig& config, JsonMembers& json) {
    write_windows_and_scores(config, json);
    for (const LayerConfig& layer : config.layers)
        if (window_of(layer)) {
            require(std::holds_alternative<std::monostate>(rope_of(layer)->scaling),
                    "export: gemma3_text's layers with a window have no RoPE scaling");
            json.push_back({"rope_local_base_freq", double(rope_of(layer)->rope_theta)});
            return;
        }
}

void check_gemma3_gguf(const FamilyConfig& config) {
    check_gemma_gguf(config, 6);
    for (const LayerConfig& layer : config.layers)
        require(!window_of(layer) || rope_of(layer)->rope_theta == 10'000,
                "export: llama.cpp's gemma3 has a rope_local_base_freq of 10000");
    require(!first_attention(config)->attn_logit_softcapping,
            "export: llama.cpp's gemma3 has no soft cap of scores");
}

// Positions of full attention may be divided by a factor.
void read_gemma3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_windows(gguf, 6, config);
    read_score_scale_of_27b(62, config);
    gguf.expect_text("rope.scaling.type", "linear");
    if (gguf.has("rope.scaling.factor"))
        set_rope_scaling(config,
                         FrequencyFactors{Vector(std::array{config.head_dim / 2},
                                                 gguf.positive("rope.scaling.factor"))});
    set_local_theta(config, Real(10'000));
}

}  // namespace

const Family& gemma3_family() {
    static const Family family = [] {
        Family gemma3 = gemma_with_four_norms(
            "gemma3_text", "Gemma3ForCausalLM", "gemma3",
            {262208, 2304, 9216, 26, 8, 4, 131072, 256, 1e-6, 1'000'000, true});
        gemma3.build = build_gemma3;
        gemma3.read = read_gemma3;
        gemma3.write = write_gemma3;
        gemma3.check_gguf = check_gemma3_gguf;
        gemma3.read_gguf = read_gemma3_gguf;
        return gemma3;
    }();
    return family;
}

}  // namespace llm::models
