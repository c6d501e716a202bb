// DeepSeek-V2 and V3: latent attention; the first layers are dense, the others have a mixture
// of experts with shared ones, from limited groups. Source: Hugging Face,
// modeling_deepseek_v2.py and modeling_deepseek_v3.py; for YaRN's factor, which transformers
// leaves out in V2, DeepSeek's own modeling_deepseek.py.
#include "chapters/models/families/deepseek.hpp"

#include "chapters/models/families/deepseek_gguf.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// Latent attention in all layers, with the RoPE that has been read of qk_rope_head_dim
// features. YaRN's factors are DeepSeek's.
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

ExpertGroups read_groups(const JsonFile& json, const ExpertSizes& experts,
                         const ExpertGroups& defaults, bool limited) {
    const ExpertGroups groups{json.size_or("n_group", defaults.n_group),
                              json.size_or("topk_group", defaults.topk_group)};
    if (!limited) return {};
    if (experts.num_experts % groups.n_group != 0)
        json.reject("n_group",
                    "must divide the number of experts, " + to_text(experts.num_experts));
    if (groups.topk_group > groups.n_group)
        json.reject("topk_group", "must be at most n_group, " + to_text(groups.n_group));
    if (experts.num_experts_per_tok > groups.topk_group * experts.num_experts / groups.n_group)
        json.reject("topk_group", "groups have fewer than num_experts_per_tok experts, " +
                                      to_text(experts.num_experts_per_tok));
    return groups;
}

ExpertSizes read_sizes_of_experts(const JsonFile& json, const ExpertSizes& defaults) {
    ExpertSizes sizes = read_experts(json, "n_routed_experts", defaults);
    sizes.moe_intermediate_size =
        json.size_or("moe_intermediate_size", defaults.moe_intermediate_size);
    sizes.n_shared_experts = json.size_or("n_shared_experts", defaults.n_shared_experts);
    return sizes;
}

void set_routed_experts(const JsonFile& json, const std::vector<bool>& has_experts,
                        const ExpertSizes& sizes, const Routing& routing,
                        FamilyConfig& config) {
    if (json.size_or("moe_layer_freq", 1) != 1)
        json.reject_value("moe_layer_freq", to_text(json.size("moe_layer_freq")), "1");
    set_experts(config, make_experts(config, sizes, routing),
                [&](std::size_t n) { return has_experts[n]; });
    for (const char* of_training : {"aux_loss_alpha", "seq_aux", "ep_size"})
        json.ignore(of_training);
}

void expect_text(const JsonFile& json, const std::string& key, const std::string& text) {
    if (json.has(key) && json.text(key) != text) json.reject_value(key, json.text(key), text);
}

const LatentSizes default_latent = {0, 0, 1536, 512, 128, 64, 128};

void read_deepseek_v2(const JsonFile& json, FamilyConfig& config) {
    read_latent(json, default_latent, config);
    const std::size_t count = json.size("num_experts_per_tok");  // transformers has no default
    const ExpertSizes sizes = read_sizes_of_experts(json, {64, count, 1407, 2});
    expect_text(json, "scoring_func", "softmax");
    if (json.boolean_or("norm_topk_prob", false))
        json.reject_value("norm_topk_prob", "true", "false");
    const std::string method = json.has("topk_method") ? json.text("topk_method") : "greedy";
    if (method != "greedy" && method != "group_limited_greedy")
        json.reject_value("topk_method", method, "greedy and group_limited_greedy");
    set_routed_experts(json, read_first_dense_layers(json, 0, config), sizes,
                       SoftmaxRouting{false, Real(json.positive_or("routed_scaling_factor", 1)),
                                      read_groups(json, sizes, {}, method != "greedy")},
                       config);
}

void read_deepseek_v3_defaults(const JsonFile& json, FamilyConfig& config) {
    read_deepseek_v3(json, {default_latent, {256, 8, 2048, 1}, Real(2.5), {8, 4}},
                     read_first_dense_layers(json, 3, config), config);
}

void write_routing(const Routing& any_routing, JsonMembers& json) {
    const auto add = [&](const auto& routing, const std::string& method) {
        json.insert(json.end(),
                    {{"norm_topk_prob", routing.norm_topk_prob},
                     {"routed_scaling_factor", double(routing.routed_scaling_factor)},
                     {"n_group", routing.groups.n_group},
                     {"topk_group", routing.groups.topk_group},
                     {"topk_method", method}});
    };
    if (const auto* softmax = std::get_if<SoftmaxRouting>(&any_routing))
        add(*softmax, "group_limited_greedy");
    else
        add(std::get<SigmoidRouting>(any_routing), "noaux_tc");
}

void write_deepseek(const FamilyConfig& config, JsonMembers& json) {
    const LatentConfig& latent = latent_of(config);
    const LatentSizes& sizes = latent.sizes;
    json.insert(json.end(), {{"kv_lora_rank", sizes.kv_lora_rank},
                             {"qk_nope_head_dim", sizes.qk_nope_head_dim},
                             {"v_head_dim", sizes.v_head_dim},
                             {"q_lora_rank", nullptr},
                             {"first_k_dense_replace", num_dense_layers(config)}});
    // Replaces null, which is not the same as a missing key: transformers has a default.
    if (sizes.q_lora_rank) json.push_back({"q_lora_rank", *sizes.q_lora_rank});
    if (std::holds_alternative<YarnScaling>(latent.rope.scaling)) {
        json.push_back({"rope_scaling.mscale", double(latent.mscale)});
        if (latent.mscale_all_dim > 0)
            json.push_back({"rope_scaling.mscale_all_dim", double(latent.mscale_all_dim)});
    }
    const MoeConfig* moe = first_moe(config);
    if (!moe) return;
    json.insert(json.end(), {{"n_routed_experts", moe->sizes.num_experts},
                             {"num_experts_per_tok", moe->sizes.num_experts_per_tok},
                             {"moe_intermediate_size", moe->sizes.moe_intermediate_size},
                             {"n_shared_experts", moe->sizes.n_shared_experts}});
    write_routing(moe->routing, json);
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

std::vector<bool> read_first_dense_layers(const JsonFile& json, std::size_t dense_layers,
                                          const FamilyConfig& config) {
    const std::size_t first = json.count_or("first_k_dense_replace", dense_layers);
    std::vector<bool> has_experts;
    for (std::size_t n = 0; n < config.layers.size(); ++n) has_experts.push_back(n >= first);
    return has_experts;
}

void read_deepseek_v3(const JsonFile& json, const DeepseekDefaults& defaults,
                      const std::vector<bool>& has_experts, FamilyConfig& config) {
    read_latent(json, defaults.latent, config);
    const ExpertSizes sizes = read_sizes_of_experts(json, defaults.experts);
    expect_text(json, "scoring_func", "sigmoid");
    expect_text(json, "topk_method", "noaux_tc");
    if (!json.boolean_or("rope_interleave", true))
        json.reject_value("rope_interleave", "false", "true");
    const double factor =
        json.positive_or("routed_scaling_factor", double(defaults.routed_scaling_factor));
    set_routed_experts(json, has_experts, sizes,
                       SigmoidRouting{{},
                                      json.boolean_or("norm_topk_prob", true),
                                      Real(factor),
                                      read_groups(json, sizes, defaults.groups, true)},
                       config);
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
