// Qwen3.5, 3.6 and 3.8: the layers of Qwen3-Next, whose input projections are apart, with a
// dense MLP or with experts; the text part of models for pictures. Source: Hugging Face,
// modeling_qwen3_5.py and modeling_qwen3_5_moe.py.
#include "chapters/models/families/qwen3_5_gguf.hpp"

namespace llm::models {
namespace {

void read_qwen3_5(const JsonFile& json, FamilyConfig& config) {
    if (!json.boolean_or("attn_output_gate", true))
        json.reject_value("attn_output_gate", "false", "true");
    const std::string gate = "output_gate_type";  // of the DeltaNet
    if (json.has(gate) && json.text(gate) != "swish" && json.text(gate) != "silu")
        json.reject_value(gate, json.text(gate), "swish and silu");
    // Of multi-token prediction, and the precision of a state that is computed elsewhere.
    for (const char* key :
         {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"})
        json.ignore(key);
    read_linear_layers(json, config);
}

// What files of its relatives say of the mixtures is fixed here.
void read_qwen3_5_moe(const JsonFile& json, FamilyConfig& config) {
    read_qwen3_5(json, config);
    json.ignore("intermediate_size");
    if (!json.boolean_or("norm_topk_prob", true))
        json.reject_value("norm_topk_prob", "false", "true");
    if (json.size_or("decoder_sparse_step", 1) != 1)
        json.reject_value("decoder_sparse_step", to_text(json.size("decoder_sparse_step")),
                          "1");
    set_experts(config, read_gated_experts(json, {256, 8, 512}, SoftmaxRouting{}, config),
                [](std::size_t) { return true; });
}

void write_qwen3_5_moe(const FamilyConfig& config, JsonMembers& json) {
    add_linear_layers(config, json);
    add_gated_experts(config, json);
}

FamilyLayerNames qwen3_5_names() {
    FamilyLayerNames names = gated_layer_names();
    names.in_proj_qkv = "linear_attn.in_proj_qkv";
    names.in_proj_z = "linear_attn.in_proj_z";
    names.in_proj_b = "linear_attn.in_proj_b";
    names.in_proj_a = "linear_attn.in_proj_a";
    return names;
}

Family make_qwen3_5(const std::string& model_type, const std::string& architecture,
                    const std::string& gguf_architecture) {
    Family family{.model_type = model_type,
                  .architecture = architecture,
                  .gguf_architecture = gguf_architecture,
                  .names = qwen3_5_names(),
                  .gguf_names = qwen3_5_gguf_names(),
                  .layout = {.norm_offset = 1},
                  .unused_tensors = {"mtp.", "model.visual."},
                  .nextn_layers = "mtp.layers.",
                  .build = build_gated_attention,
                  .check_gguf = check_linear_layers_gguf};
    return family;
}

}  // namespace

const Family& qwen3_5_family() {
    static const Family family = [] {
        Family dense = make_qwen3_5("qwen3_5_text", "Qwen3_5ForCausalLM", "qwen35");
        dense.defaults = {248320, 4096, 12288, 32, 16, 4, 32768, 256};
        dense.read = read_qwen3_5;
        dense.write = add_linear_layers;
        dense.add_gguf = add_qwen3_5_gguf;
        dense.read_gguf = read_qwen3_5_gguf;
        return dense;
    }();
    return family;
}

const Family& qwen3_5_moe_family() {
    static const Family family = [] {
        Family mixtures =
            make_qwen3_5("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen35moe");
        mixtures.attribute_map = {{"intermediate_size", "moe_intermediate_size"}};
        mixtures.defaults = {248320, 2048, 512, 40, 16, 2, 32768, 256};
        mixtures.read = read_qwen3_5_moe;
        mixtures.write = write_qwen3_5_moe;
        mixtures.add_gguf = add_qwen3_5_moe_gguf;
        mixtures.read_gguf = read_qwen3_5_moe_gguf;
        return mixtures;
    }();
    return family;
}

}  // namespace llm::models
