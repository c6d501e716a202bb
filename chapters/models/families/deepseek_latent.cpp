// The keys of latent attention in the files of DeepSeek and its relatives.
#include "chapters/models/families/deepseek.hpp"
#include "chapters/models/llama/rope_keys.hpp"

namespace llm::models {

const LatentConfig& latent_of(const FamilyConfig& config) {
    return std::get<LatentConfig>(config.layers.front().mixer);
}

void read_latent(const JsonFile& json, const LatentSizes& defaults, FamilyConfig& config) {
    if (json.is_null("kv_lora_rank") || !json.boolean_or("use_mla", true))
        json.reject("kv_lora_rank",
                    "is missing: attention that is not latent is not supported");
    LatentConfig latent{{config.hidden_size, config.num_attention_heads, std::nullopt,
                         json.size_or("kv_lora_rank", defaults.kv_lora_rank),
                         json.size_or("qk_nope_head_dim", defaults.qk_nope_head_dim),
                         config.head_dim, json.size_or("v_head_dim", defaults.v_head_dim)},
                        *main_rope(config)};
    if (latent.rope.rotary_dim != latent.rope.head_dim)
        json.reject("partial_rotary_factor", "must be 1: qk_rope_head_dim is what is rotated");
    if (!json.is_null("q_lora_rank"))
        latent.sizes.q_lora_rank = json.size_or("q_lora_rank", *defaults.q_lora_rank);
    json.ignore("head_dim");  // newer versions repeat it there
    json.ignore("qk_head_dim");
    if (auto* yarn = std::get_if<YarnScaling>(&latent.rope.scaling)) {
        const std::string inside = rope_object(json, false);
        latent.mscale = Real(json.positive_or(inside + ".mscale", 1));
        if (json.has(inside + ".mscale_all_dim"))
            latent.mscale_all_dim = Real(json.positive_or(inside + ".mscale_all_dim", 1));
        yarn->attention_factor = yarn_mscale(yarn->factor, latent.mscale) /
                                 yarn_mscale(yarn->factor, latent.mscale_all_dim);
    }
    for (LayerConfig& layer : config.layers) layer.mixer = latent;
}

void write_latent(const FamilyConfig& config, JsonMembers& json) {
    const LatentConfig& latent = latent_of(config);
    const LatentSizes& sizes = latent.sizes;
    json.insert(json.end(), {{"kv_lora_rank", sizes.kv_lora_rank},
                             {"qk_nope_head_dim", sizes.qk_nope_head_dim},
                             {"v_head_dim", sizes.v_head_dim},
                             {"q_lora_rank", nullptr}});
    // Replaces null, which is not the same as a missing key: transformers has a default.
    if (sizes.q_lora_rank) json.push_back({"q_lora_rank", *sizes.q_lora_rank});
    if (std::holds_alternative<YarnScaling>(latent.rope.scaling)) {
        json.push_back({"rope_scaling.mscale", double(latent.mscale)});
        if (latent.mscale_all_dim > 0)
            json.push_back({"rope_scaling.mscale_all_dim", double(latent.mscale_all_dim)});
    }
}

}  // namespace llm::models
