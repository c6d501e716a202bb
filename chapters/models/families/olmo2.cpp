// OLMo 2: norms after the sublayers (res-post-norm), and a QK norm over all heads of a token.
// Source: Hugging Face, modeling_olmo2.py; "2 OLMo 2 Furious" (2025), section 3.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void build_olmo2(FamilyConfig& config) {
    config.norm_placement = NormPlacement::res_post_norm;
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::over_all_heads;
}

void check_olmo2_gguf(const FamilyConfig& config) {
    require_tied_head(config, false);
    reject_other_query_widths(config);
}

}  // namespace

const Family& olmo2_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
        names.attention_norm = "post_attention_layernorm";
        names.ffn_norm = "post_feedforward_layernorm";
        in_gguf.attention_norm = "post_attention_norm";
        in_gguf.ffn_norm = "post_ffw_norm";
        return Family{.model_type = "olmo2",
                      .architecture = "Olmo2ForCausalLM",
                      .gguf_architecture = "olmo2",
                      .names = names,
                      .gguf_names = in_gguf,
                      .defaults = {50304, 4096, 11008, 32, 32, 0, 2048, 0, 1e-5},
                      .build = build_olmo2,
                      .check_gguf = check_olmo2_gguf};
    }();
    return family;
}

}  // namespace llm::models
