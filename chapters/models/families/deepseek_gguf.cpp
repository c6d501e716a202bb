// Source: llama.cpp, convert_hf_to_gguf.py and the architecture deepseek2.
#include "chapters/models/families/deepseek_gguf.hpp"

#include <algorithm>

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

const LatentConfig& latent_of(const FamilyConfig& config) {
    return std::get<LatentConfig>(config.layers.front().mixer);
}

std::size_t num_dense_layers(const FamilyConfig& config) {
    const auto first = std::find_if(config.layers.begin(), config.layers.end(),
                                    [](const LayerConfig& layer) { return moe_of(layer); });
    return std::size_t(first - config.layers.begin());
}

void check_deepseek_gguf(const FamilyConfig& config) {
    const LatentConfig& latent = latent_of(config);
    const std::size_t num_layers = config.num_hidden_layers;
    require(config.rms_norm_eps == Real(1e-6),
            "export: llama.cpp's deepseek2 has one eps for all norms, and that of the inner "
            "ones is 1e-6");
    require(latent.sizes.q_lora_rank || num_layers == 26 || num_layers == 27,
            "export: llama.cpp's deepseek2 has low-rank queries unless it has 26 or 27 layers, "
            "not {}",
            num_layers);
    const auto* yarn = std::get_if<YarnScaling>(&latent.rope.scaling);
    require(!yarn || (yarn->beta_fast == 32 && yarn->beta_slow == 1 && yarn->truncate &&
                      latent.mscale == latent.mscale_all_dim),
            "export: llama.cpp's deepseek2 has YaRN's limits of 32 and 1 rotations, and one "
            "mscale");
    const std::size_t num_dense = num_dense_layers(config);
    require(
        num_dense < num_layers &&
            std::all_of(config.layers.begin() + std::ptrdiff_t(num_dense), config.layers.end(),
                        [](auto& layer) { return moe_of(layer); }),
        "export: llama.cpp's deepseek2 has experts in all layers after the first dense ones");
    const auto* softmax =
        first_moe(config) ? std::get_if<SoftmaxRouting>(&first_moe(config)->routing) : nullptr;
    require(!softmax || softmax->groups.n_group == 1,
            "export: llama.cpp's deepseek2 with a softmax has no groups of experts");
}

void add_deepseek_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const LatentConfig& latent = latent_of(config);
    const LatentSizes& sizes = latent.sizes;
    const std::string prefix = config.family->gguf_architecture + ".";
    const auto add_size = [&](const std::string& key, std::size_t size) {
        metadata.emplace_back(prefix + key, std::int64_t(size));
    };
    // Absorbed, it is multi-query attention.
    const auto replace = [&](const std::string& key, std::size_t size) {
        for (auto& [name, value] : metadata)
            if (name == prefix + "attention." + key) value = std::int64_t(size);
    };
    replace("head_count_kv", 1);
    replace("key_length", sizes.kv_lora_rank + sizes.qk_rope_head_dim);
    replace("value_length", sizes.kv_lora_rank);
    if (sizes.q_lora_rank) add_size("attention.q_lora_rank", *sizes.q_lora_rank);
    add_size("attention.kv_lora_rank", sizes.kv_lora_rank);
    add_size("attention.key_length_mla", sizes.qk_nope_head_dim + sizes.qk_rope_head_dim);
    add_size("attention.value_length_mla", sizes.v_head_dim);

    add_size("leading_dense_block_count", num_dense_layers(config));
    add_gguf_experts(config, metadata);
    add_size("expert_shared_count", first_moe(config)->sizes.n_shared_experts);
    add_routing(config, metadata);
    add_gguf_yarn(config, metadata);
    if (std::holds_alternative<YarnScaling>(latent.rope.scaling))
        add_gguf_number(config, "rope.scaling.yarn_log_multiplier",
                        0.1 * double(latent.mscale_all_dim), metadata);
}

void read_deepseek_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    // Files of before April 2025 have attn_kv_b, and the sizes of the expanded heads as
    // key_length and value_length.
    const bool absorbed =
        gguf.file.any_number(gguf.full("attention.key_length_mla")).value_or(0) != 0;
    const std::string suffix = absorbed ? "_mla" : "";
    const std::size_t rotated = gguf.size("rope.dimension_count"),
                      key_length = gguf.size("attention.key_length" + suffix);
    if (key_length <= rotated)
        gguf.file.reject(gguf.full("attention.key_length" + suffix) +
                         " must exceed rope.dimension_count");
    LatentConfig latent{{config.hidden_size, config.num_attention_heads, std::nullopt,
                         gguf.size("attention.kv_lora_rank"), key_length - rotated, rotated,
                         gguf.size("attention.value_length" + suffix)},
                        {config.rope_theta, rotated, rotated}};
    if (absorbed && config.head_dim != latent.sizes.kv_lora_rank + rotated)
        gguf.file.reject(gguf.full("attention.key_length") +
                         " must be kv_lora_rank + rope.dimension_count");
    if (gguf.has("attention.q_lora_rank"))
        latent.sizes.q_lora_rank = gguf.size("attention.q_lora_rank");
    gguf.size("attention.value_length");  // the rank again
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = rotated;
    if (auto yarn = read_gguf_yarn(gguf)) {
        // 0.1 times mscale_all_dim, which equals mscale.
        const std::string multiplier = "rope.scaling.yarn_log_multiplier";
        latent.mscale = latent.mscale_all_dim =
            gguf.has(multiplier) ? 10 * gguf.positive(multiplier) : 0;
        yarn->attention_factor = 1;
        latent.rope.scaling = *yarn;
    }
    for (LayerConfig& layer : config.layers) layer.mixer = latent;

    ExpertSizes sizes = read_gguf_experts(gguf, "expert_feed_forward_length");
    sizes.n_shared_experts = gguf.size("expert_shared_count");
    const std::int64_t dense = gguf.file.integer(gguf.full("leading_dense_block_count"));
    set_experts(config, make_experts(config, sizes, read_routing(gguf, config)),
                [&](std::size_t n) { return std::int64_t(n) >= dense; });
}

}  // namespace llm::models
