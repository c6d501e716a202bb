// OLMo 2: norms after the sublayers (res-post-norm), and a QK norm over all heads of a token.
// Source: Hugging Face, modeling_olmo2.py; "2 OLMo 2 Furious" (2025), section 3.
#include "chapters/models/family.hpp"

namespace llm::models {
namespace {

void check_olmo2_gguf(const FamilyConfig& config) {
    require(!config.tie_word_embeddings, "export: llama.cpp's olmo2 has no tied head");
    reject_other_query_widths(config);
}

Family make_olmo2_family() {
    FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
    names.attention_norm = "post_attention_layernorm";
    names.ffn_norm = "post_feedforward_layernorm";
    in_gguf.attention_norm = "post_attention_norm";
    in_gguf.ffn_norm = "post_ffw_norm";
    return {.model_type = "olmo2",
            .architecture = "Olmo2ForCausalLM",
            .gguf_architecture = "olmo2",
            .names = names,
            .gguf_names = in_gguf,
            .norm_placement = NormPlacement::res_post_norm,
            .defaults = {50304, 4096, 11008, 32, 32, 0, 2048, 0, 1e-5},
            .qk_norm = QKNormType::over_all_heads,
            .check_gguf = check_olmo2_gguf};
}

}  // namespace

const Family& olmo2_family() {
    static const Family family = make_olmo2_family();
    return family;
}

}  // namespace llm::models
