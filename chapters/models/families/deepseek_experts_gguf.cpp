// Mixtures of experts in GGUF files of DeepSeek and its relatives.
#include <algorithm>

#include "chapters/models/families/deepseek_gguf.hpp"

namespace llm::models {
namespace {

constexpr std::int64_t softmax_gating = 1, sigmoid_gating = 2;  // expert_gating_func

void add_routing(const FamilyConfig& config, GgufMetadata& metadata) {
    const std::string prefix = config.family->gguf_architecture + ".";
    const Routing& routing = first_moe(config)->routing;
    const auto* softmax = std::get_if<SoftmaxRouting>(&routing);
    const auto add = [&](const auto& any_routing) {
        metadata.emplace_back(prefix + "expert_weights_scale",
                              double(any_routing.routed_scaling_factor));
        metadata.emplace_back(prefix + "expert_weights_norm", any_routing.norm_topk_prob);
        if (any_routing.groups.n_group == 1) return;
        metadata.emplace_back(prefix + "expert_group_count",
                              std::int64_t(any_routing.groups.n_group));
        metadata.emplace_back(prefix + "expert_group_used_count",
                              std::int64_t(any_routing.groups.topk_group));
    };
    metadata.emplace_back(prefix + "expert_gating_func",
                          softmax ? softmax_gating : sigmoid_gating);
    if (softmax)
        add(*softmax);
    else
        add(std::get<SigmoidRouting>(routing));
}

bool has_correction_bias(const Gguf& file) {
    return std::any_of(file.tensors().begin(), file.tensors().end(), [](const auto& tensor) {
        return tensor.first.ends_with("exp_probs_b.bias");
    });
}

Routing read_routing(const GgufSettings& gguf, FamilyConfig& config) {
    const std::string function = gguf.full("expert_gating_func"),
                      norm = gguf.full("expert_weights_norm");
    // Files of DeepSeek-V2 leave the function out, and those of GLM-4.7-Flash, which has a
    // bias.
    const std::int64_t otherwise =
        has_correction_bias(gguf.file) ? sigmoid_gating : softmax_gating;
    const std::int64_t gating =
        gguf.has("expert_gating_func") ? gguf.file.integer(function) : otherwise;
    const Real scale = gguf.positive("expert_weights_scale");
    const bool normalized = gguf.has("expert_weights_norm") && gguf.file.boolean(norm);
    ExpertGroups groups;
    if (gguf.has("expert_group_count"))
        groups = {gguf.size("expert_group_count"), gguf.size("expert_group_used_count")};
    if (gating == sigmoid_gating) {
        config.family = &deepseek_v3_family();
        return SigmoidRouting{{}, normalized, scale, groups};
    }
    if (gating != softmax_gating || normalized || groups.n_group > 1)
        gguf.file.reject(function + " must be 2, or 1 without " + norm + " and groups");
    return SoftmaxRouting{false, scale};
}

}  // namespace

void check_deepseek_experts_gguf(const FamilyConfig& config) {
    const std::size_t num_dense = num_dense_layers(config);
    require(
        num_dense < config.layers.size() &&
            std::all_of(config.layers.begin() + std::ptrdiff_t(num_dense), config.layers.end(),
                        [](auto& layer) { return moe_of(layer); }),
        "export: llama.cpp's deepseek2 has experts in all layers after the first dense ones");
    const auto* softmax =
        first_moe(config) ? std::get_if<SoftmaxRouting>(&first_moe(config)->routing) : nullptr;
    require(!softmax || softmax->groups.n_group == 1,
            "export: llama.cpp's deepseek2 with a softmax has no groups of experts");
}

void add_deepseek_experts_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_size(config, "leading_dense_block_count", num_dense_layers(config), metadata);
    add_gguf_experts(config, metadata);
    add_gguf_size(config, "expert_shared_count", first_moe(config)->sizes.n_shared_experts,
                  metadata);
    add_routing(config, metadata);
}

void read_deepseek_experts_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    ExpertSizes sizes = read_gguf_experts(gguf, "expert_feed_forward_length");
    sizes.n_shared_experts = gguf.size("expert_shared_count");
    const std::int64_t dense = gguf.file.integer(gguf.full("leading_dense_block_count"));
    set_experts(config, make_experts(config, sizes, read_routing(gguf, config)),
                [&](std::size_t n) { return std::int64_t(n) >= dense; });
}

}  // namespace llm::models
