// GLM-4-0414: a Llama with norms before and after each sublayer, biases of queries, keys and
// values (9B; the 32B models have none), and RoPE that rotates the first half of each head, in
// interleaved pairs. Source: Hugging Face, modeling_glm4.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void build_glm4(FamilyConfig& config) {
    config.norm_placement = NormPlacement::sandwich;
    set_rotary_dim(config, config.head_dim / 2);
}

// The choice stands with the sizes, too: llama.cpp's graph has these biases if the file does.
void set_biases(FamilyConfig& config, bool has_biases) {
    config.attention_bias = has_biases ? AttentionBias::qkv : AttentionBias::none;
    for (LayerConfig& layer : config.layers) attention_of(layer)->bias = config.attention_bias;
}

void read_glm4(const JsonFile& json, FamilyConfig& config) {
    set_biases(config, json.boolean_or("attention_bias", true));
}

void write_glm4(const FamilyConfig& config, JsonMembers& json) {
    json.push_back({"attention_bias", config.attention_bias == AttentionBias::qkv});
    // Half of each head is what a file without this key means.
    if (main_rope(config)->rotary_dim == config.head_dim)
        json.push_back({"partial_rotary_factor", 1.0});
}

void read_glm4_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    set_biases(config, gguf.file.has_tensor("blk.0.attn_q.bias"));
    set_rotary_dim(config, gguf.size("rope.dimension_count"));
}

}  // namespace

const Family& glm4_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
        // post_attention_layernorm stands before the MLP, as in Llama.
        names.attention_output_norm = "post_self_attn_layernorm";
        names.ffn_output_norm = "post_mlp_layernorm";
        names.gate_up_proj = "mlp.gate_up_proj";
        in_gguf.attention_output_norm = "post_attention_norm";
        in_gguf.ffn_output_norm = "post_ffw_norm";
        in_gguf.gate_up_proj = "ffn_up";
        return Family{.model_type = "glm4",
                      .architecture = "Glm4ForCausalLM",
                      .gguf_architecture = "glm4",
                      .names = names,
                      .gguf_names = in_gguf,
                      .layout = {.rope = RopeLayout::interleaved},
                      .gguf_layout = RopeLayout::interleaved,
                      .attribute_map = {{"attention_bias", ""}},
                      .defaults = {151552, 4096, 13696, 40, 32, 2, 131072, 128, 1.5625e-7},
                      .build = build_glm4,
                      .read = read_glm4,
                      .write = write_glm4,
                      .read_gguf = read_glm4_gguf};
    }();
    return family;
}

}  // namespace llm::models
