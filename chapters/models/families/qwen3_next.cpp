// Qwen3-Next: three layers of Gated DeltaNet to one of attention with an output gate, whose
// RoPE rotates a quarter of each head; many small experts, and a shared one with a gate.
// Source: Hugging Face, modeling_qwen3_next.py.
#include "chapters/models/families/qwen3_next.hpp"

namespace llm::models {

namespace {

void read_qwen3_next(const JsonFile& json, FamilyConfig& config) {
    read_linear_layers(json, config);
    const SoftmaxRouting routing{json.boolean_or("norm_topk_prob", true)};
    read_moe_layers(json, read_gated_experts(json, {512, 10, 512}, routing, config), config);
}

void write_qwen3_next(const FamilyConfig& config, JsonMembers& json) {
    add_linear_layers(config, json);
    add_moe_layers(config, json);
    add_gated_experts(config, json);
    if (const MoeConfig* moe = first_moe(config))
        json.insert(json.end(), {{"moe_intermediate_size", moe->sizes.moe_intermediate_size},
                                 {"norm_topk_prob",
                                  std::get<SoftmaxRouting>(moe->routing).norm_topk_prob}});
}

FamilyLayerNames qwen3_next_names() {
    FamilyLayerNames names = gated_layer_names();
    names.in_proj_qkvz = "linear_attn.in_proj_qkvz";
    names.in_proj_ba = "linear_attn.in_proj_ba";
    return names;
}

FamilyLayerNames qwen3_next_gguf_names() {
    FamilyLayerNames names = gated_layer_gguf_names();
    names.in_proj_ba = "ssm_ba";
    return names;
}

void check_qwen3_next_gguf(const FamilyConfig& config) {
    reject_dense_layers(config);
    require(std::get<SoftmaxRouting>(first_moe(config)->routing).norm_topk_prob,
            "export: llama.cpp's qwen3next normalizes the routing weights");
    check_linear_layers_gguf(config);
}

void add_qwen3_next_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_linear_layers_gguf(config, metadata);
    add_gated_experts_gguf(config, metadata);
}

void read_qwen3_next_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_linear_layers_gguf(gguf, config);
    read_gated_experts_gguf(gguf, config);
}

}  // namespace

const Family& qwen3_next_family() {
    static const Family family{.model_type = "qwen3_next",
                               .architecture = "Qwen3NextForCausalLM",
                               .gguf_architecture = "qwen3next",
                               .names = qwen3_next_names(),
                               .gguf_names = qwen3_next_gguf_names(),
                               .layout = {.norm_offset = 1},
                               .unused_tensors = {"mtp."},
                               .nextn_layers = "mtp.layers.",
                               .defaults = {151936, 2048, 5632, 48, 16, 2, 32768, 256},
                               .build = build_gated_attention,
                               .read = read_qwen3_next,
                               .write = write_qwen3_next,
                               .check_gguf = check_qwen3_next_gguf,
                               .add_gguf = add_qwen3_next_gguf,
                               .read_gguf = read_qwen3_next_gguf};
    return family;
}

}  // namespace llm::models
