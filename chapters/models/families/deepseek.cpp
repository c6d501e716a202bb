// DeepSeek-V2 and V3: latent attention; the first layers are dense, the others have a mixture
// of experts with shared ones, from limited groups. Source: Hugging Face,
// modeling_deepseek_v2.py and modeling_deepseek_v3.py; for YaRN's factor, which transformers
// leaves out in V2, DeepSeek's own modeling_deepseek.py.
#include "chapters/models/families/deepseek_gguf.hpp"

namespace llm::models {
namespace {

const LatentSizes default_latent = {0, 0, 1536, 512, 128, 64, 128};

void read_deepseek_v2(const JsonFile& json, FamilyConfig& config) {
    read_latent(json, default_latent, config);
    read_softmax_experts(json, read_first_dense_layers(json, 0, config), config);
}

void write_deepseek(const FamilyConfig& config, JsonMembers& json) {
    write_latent(config, json);
    write_routed_experts(config, json);
}

void read_deepseek_v3_defaults(const JsonFile& json, FamilyConfig& config) {
    read_deepseek_v3(json, {default_latent, {256, 8, 2048, 1}, Real(2.5), {8, 4}},
                     read_first_dense_layers(json, 3, config), config);
}

FamilyLayerNames gguf_names_of_deepseek() {
    FamilyLayerNames names = gguf_layer_names();
    names.q_a_proj = "attn_q_a";
    names.q_a_layernorm = "attn_q_a_norm";
    names.q_b_proj = "attn_q_b";
    names.kv_a_proj = "attn_kv_a_mqa";
    names.kv_a_layernorm = "attn_kv_a_norm";
    names.correction_bias = "exp_probs_b.bias";
    return names;
}

Family deepseek_family() {
    FamilyLayerNames names = hugging_face_layer_names();
    names.q_a_proj = "self_attn.q_a_proj";
    names.q_a_layernorm = "self_attn.q_a_layernorm";
    names.q_b_proj = "self_attn.q_b_proj";
    names.kv_a_proj = "self_attn.kv_a_proj_with_mqa";
    names.kv_a_layernorm = "self_attn.kv_a_layernorm";
    names.kv_b_proj = "self_attn.kv_b_proj";
    names.router = "mlp.gate";
    names.experts = "mlp.experts.";
    names.expert = {"gate_proj", "up_proj", "down_proj"};
    names.shared_expert = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
                           "mlp.shared_experts.down_proj"};
    return {.model_type = "deepseek_v2",
            .architecture = "DeepseekV2ForCausalLM",
            .gguf_architecture = "deepseek2",
            .names = names,
            .gguf_names = gguf_names_of_deepseek(),
            .gguf_layout = RopeLayout::interleaved,
            .attribute_map = {{"attention_bias", ""}, {"head_dim", "qk_rope_head_dim"}},
            .defaults = {32000, 4096, 11008, 32, 32, 0, 2048, 64},
            .read = read_deepseek_v2,
            .write = write_deepseek,
            .check_gguf = check_deepseek_gguf,
            .add_gguf = add_deepseek_gguf,
            .read_gguf = read_deepseek_gguf};
}

}  // namespace

void read_deepseek_v3(const JsonFile& json, const DeepseekDefaults& defaults,
                      const std::vector<bool>& has_experts, FamilyConfig& config) {
    read_latent(json, defaults.latent, config);
    read_sigmoid_experts(json, defaults, has_experts, config);
    if (!json.boolean_or("rope_interleave", true))
        json.reject_value("rope_interleave", "false", "true");
    config.num_nextn_predict_layers = json.count_or("num_nextn_predict_layers", 0);
}

const Family& deepseek_v2_family() {
    static const Family family = deepseek_family();
    return family;
}

const Family& deepseek_v3_family() {
    static const Family family = [] {
        Family v3 = deepseek_family();
        v3.model_type = "deepseek_v3";
        v3.defaults = {129280, 7168, 18432, 61, 128, 128, 4096, 64};
        v3.architecture = "DeepseekV3ForCausalLM";
        v3.names.correction_bias = "mlp.gate.e_score_correction_bias";
        v3.read = read_deepseek_v3_defaults;
        return v3;
    }();
    return family;
}

}  // namespace llm::models
