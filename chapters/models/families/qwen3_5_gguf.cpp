// Source: llama.cpp, conversion/qwen.py and the architectures qwen35 and qwen35moe.
#include "chapters/models/families/qwen3_5_gguf.hpp"

namespace llm::models {

FamilyLayerNames qwen3_5_gguf_names() {
    FamilyLayerNames names = gated_layer_gguf_names();
    names.in_proj_b = "ssm_beta";
    names.in_proj_a = "ssm_alpha";
    names.tiled_value_heads = true;
    return names;
}

// A token of a text has three equal positions, so that the parts of the pairs have no effect.
void add_qwen3_5_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_linear_layers_gguf(config, metadata);
    const RopeParameters* rope = main_rope(config);
    const auto pairs = std::int64_t((rope ? rope->rotary_dim : config.head_dim) / 2);
    metadata.emplace_back(
        config.family->gguf_architecture + ".rope.dimension_sections",
        std::vector<std::int64_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

void read_qwen3_5_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    if (gguf.has("rope.dimension_sections"))
        gguf.file.integers(gguf.full("rope.dimension_sections"));
    read_linear_layers_gguf(gguf, config);
}

void add_qwen3_5_moe_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_qwen3_5_gguf(config, metadata);
    add_gated_experts_gguf(config, metadata);
}

void read_qwen3_5_moe_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_qwen3_5_gguf(gguf, config);
    read_gated_experts_gguf(gguf, config);
}

}  // namespace llm::models
