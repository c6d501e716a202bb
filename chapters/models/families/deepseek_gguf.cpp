// Source: llama.cpp, convert_hf_to_gguf.py and the architecture deepseek2.
#include "chapters/models/families/deepseek_gguf.hpp"

namespace llm::models {

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
    check_deepseek_experts_gguf(config);
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

    add_deepseek_experts_gguf(config, metadata);
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
    read_deepseek_experts_gguf(gguf, config);
}

}  // namespace llm::models
