// Source: llama.cpp, convert_hf_to_gguf.py and the architecture deepseek2.
#include "chapters/models/families/deepseek_gguf.hpp"

#include <algorithm>

namespace llm::models {
namespace {

constexpr std::int64_t softmax_gating = 1, sigmoid_gating = 2;  // expert_gating_func

bool has_sigmoid(const FamilyConfig& config) {
    return std::holds_alternative<SigmoidRouting>(config.routing);
}

void add_routing(const FamilyConfig& config, GgufMetadata& metadata) {
    const std::string prefix = config.family->gguf_architecture + ".";
    const auto add = [&](const auto& routing) {
        metadata.emplace_back(prefix + "expert_weights_scale",
                              double(routing.routed_scaling_factor));
        metadata.emplace_back(prefix + "expert_weights_norm", routing.norm_topk_prob);
        if (routing.groups.n_group == 1) return;
        metadata.emplace_back(prefix + "expert_group_count",
                              std::int64_t(routing.groups.n_group));
        metadata.emplace_back(prefix + "expert_group_used_count",
                              std::int64_t(routing.groups.topk_group));
    };
    metadata.emplace_back(prefix + "expert_gating_func",
                          has_sigmoid(config) ? sigmoid_gating : softmax_gating);
    if (has_sigmoid(config))
        add(std::get<SigmoidRouting>(config.routing));
    else
        add(std::get<SoftmaxRouting>(config.routing));
}

void read_yarn(const GgufSettings& gguf, FamilyConfig& config) {
    if (!gguf.has("rope.scaling.type")) return;
    gguf.expect_text("rope.scaling.type", "yarn");
    YarnScaling yarn;
    yarn.factor = gguf.positive("rope.scaling.factor");
    yarn.original_max_position_embeddings =
        gguf.positive("rope.scaling.original_context_length");
    yarn.attention_factor = 1;
    // 0.1 times mscale_all_dim, which equals mscale.
    const std::string multiplier = "rope.scaling.yarn_log_multiplier";
    config.mscale = config.mscale_all_dim =
        gguf.has(multiplier) ? 10 * gguf.positive(multiplier) : 0;
    config.yarn = yarn;
}

void read_routing(const GgufSettings& gguf, FamilyConfig& config) {
    const std::string function = gguf.full("expert_gating_func"),
                      norm = gguf.full("expert_weights_norm");
    const std::int64_t gating =
        gguf.has("expert_gating_func") ? gguf.file.integer(function) : softmax_gating;
    const Real scale = gguf.positive("expert_weights_scale");
    const bool normalized = gguf.has("expert_weights_norm") && gguf.file.boolean(norm);
    ExpertGroups groups;
    if (gguf.has("expert_group_count"))
        groups = {gguf.size("expert_group_count"), gguf.size("expert_group_used_count")};
    if (gating == sigmoid_gating) {
        config.family = &deepseek_v3_family();
        config.routing = SigmoidRouting{{}, normalized, scale, groups};
        return;
    }
    if (gating != softmax_gating || normalized || groups.n_group > 1)
        gguf.file.reject(function + " must be 2, or 1 without " + norm + " and groups");
    config.routing = SoftmaxRouting{false, scale};
}

}  // namespace

std::size_t num_dense_layers(const FamilyConfig& config) {
    const auto first = std::find_if(config.layers.begin(), config.layers.end(),
                                    [](const LayerConfig& layer) { return layer.is_moe; });
    return std::size_t(first - config.layers.begin());
}

void check_deepseek_gguf(const FamilyConfig& config) {
    const std::size_t num_layers = config.num_hidden_layers;
    require(config.rms_norm_eps == Real(1e-6),
            "export: llama.cpp's deepseek2 has one eps for all norms, and that of the inner "
            "ones is 1e-6");
    require(config.latent->q_lora_rank || num_layers == 26 || num_layers == 27,
            "export: llama.cpp's deepseek2 has low-rank queries unless it has 26 or 27 layers, "
            "not {}",
            num_layers);
    require(!config.yarn || (config.yarn->beta_fast == 32 && config.yarn->beta_slow == 1 &&
                             config.mscale == config.mscale_all_dim),
            "export: llama.cpp's deepseek2 has YaRN's limits of 32 and 1 rotations, and one "
            "mscale");
    const auto* softmax = std::get_if<SoftmaxRouting>(&config.routing);
    require(!softmax || softmax->groups.n_group == 1,
            "export: llama.cpp's deepseek2 with a softmax has no groups of experts");
}

void add_deepseek_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const LatentSizes& sizes = *config.latent;
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
    add_size("expert_count", config.experts.num_experts);
    add_size("expert_used_count", config.experts.num_experts_per_tok);
    add_size("expert_feed_forward_length", config.experts.moe_intermediate_size);
    add_size("expert_shared_count", config.experts.n_shared_experts);
    add_routing(config, metadata);
    if (!config.yarn) return;
    metadata.emplace_back(prefix + "rope.scaling.type", std::string("yarn"));
    metadata.emplace_back(prefix + "rope.scaling.factor", double(config.yarn->factor));
    add_size("rope.scaling.original_context_length",
             std::size_t(config.yarn->original_max_position_embeddings));
    metadata.emplace_back(prefix + "rope.scaling.yarn_log_multiplier",
                          0.1 * double(config.mscale_all_dim));
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
    config.latent = LatentSizes{config.hidden_size,
                                config.num_attention_heads,
                                std::nullopt,
                                gguf.size("attention.kv_lora_rank"),
                                key_length - rotated,
                                rotated,
                                gguf.size("attention.value_length" + suffix)};
    if (absorbed && config.head_dim != config.latent->kv_lora_rank + rotated)
        gguf.file.reject(gguf.full("attention.key_length") +
                         " must be kv_lora_rank + rope.dimension_count");
    if (gguf.has("attention.q_lora_rank"))
        config.latent->q_lora_rank = gguf.size("attention.q_lora_rank");
    gguf.size("attention.value_length");  // the rank again
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = rotated;
    config.partial_rotary_factor = 1;
    config.query_pre_attn_scalar = static_cast<Real>(key_length);

    read_gguf_experts(gguf, "expert_feed_forward_length", 1, config);
    config.experts.n_shared_experts = gguf.size("expert_shared_count");
    const std::int64_t dense = gguf.file.integer(gguf.full("leading_dense_block_count"));
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        config.layers[n].is_moe = std::int64_t(n) >= dense;
    read_routing(gguf, config);
    read_yarn(gguf, config);
}

}  // namespace llm::models
