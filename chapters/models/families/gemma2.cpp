// Gemma 2: a Gemma with four norms in each block, windows in every second layer, and soft caps
// of scores and logits. What all Gemmas change of Llama is in gemma_common.cpp: build_gemma and
// norm_offset. Source: Hugging Face, modeling_gemma2.py.
#include "chapters/models/families/gemma_common.hpp"

namespace llm::models {
namespace {

void build_gemma2(FamilyConfig& config) {
    build_gemma(config);
    config.norm_placement = NormPlacement::sandwich;
}

void read_gemma2(const JsonFile& json, FamilyConfig& config) {
    read_windows_and_scores(json, 2, 50, 30, config);
}

void check_gemma2_gguf(const FamilyConfig& config) {
    check_gemma_gguf(config, 2);
    require(first_attention(config)->attn_logit_softcapping && config.final_logit_softcapping,
            "export: llama.cpp's gemma2 has soft caps of scores and logits");
}

void read_gemma2_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_windows(gguf, 2, config);
    read_score_scale_of_27b(46, config);
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->attn_logit_softcapping = gguf.positive("attn_logit_softcapping");
    config.final_logit_softcapping = gguf.positive("final_logit_softcapping");
}

}  // namespace

const Family& gemma2_family() {
    static const Family family = [] {
        Family gemma2 = gemma_with_four_norms(
            "gemma2", "Gemma2ForCausalLM", "gemma2",
            {256000, 2304, 9216, 26, 8, 4, 8192, 256, 1e-6, 10'000, true});
        gemma2.build = build_gemma2;
        gemma2.read = read_gemma2;
        gemma2.check_gguf = check_gemma2_gguf;
        gemma2.read_gguf = read_gemma2_gguf;
        return gemma2;
    }();
    return family;
}

}  // namespace llm::models
