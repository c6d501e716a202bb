// DeepSeek-V2 and V3: latent attention; the first layers are dense, the others have a mixture
// of experts with shared ones, from limited groups. Source: Hugging Face,
// modeling_deepseek_v2.py and modeling_deepseek_v3.py; for YaRN's factor, which transformers
// leaves out in V2, DeepSeek's own modeling_deepseek.py.
#include "chapters/models/families/deepseek_gguf.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void read_latent_sizes(const JsonFile& json, FamilyConfig& config) {
    if (json.is_null("kv_lora_rank") || !json.boolean_or("use_mla", true))
        json.reject("kv_lora_rank",
                    "is missing: attention that is not latent is not supported");
    LatentSizes sizes{config.hidden_size,
                      config.num_attention_heads,
                      std::nullopt,
                      json.size_or("kv_lora_rank", 512),
                      json.size_or("qk_nope_head_dim", 128),
                      config.head_dim,
                      json.size_or("v_head_dim", 128)};
    if (!json.is_null("q_lora_rank")) sizes.q_lora_rank = json.size_or("q_lora_rank", 1536);
    config.latent = sizes;
    json.ignore("head_dim");  // newer versions repeat it there
    json.ignore("qk_head_dim");
    config.query_pre_attn_scalar =
        static_cast<Real>(sizes.qk_nope_head_dim + sizes.qk_rope_head_dim);
}

// YaRN multiplies the scores, and cosine and sine by a quotient; see yarn_mscale.
void read_yarn(const JsonFile& json, FamilyConfig& config) {
    const std::string inside = rope_object(json, false);
    if (!json.has(inside)) return;
    const std::string rope_type = read_rope_type(json, inside);
    if (rope_type == "default") return;
    if (rope_type != "yarn") json.reject_value(inside + ".rope_type", rope_type, "yarn");
    json.number(inside + ".factor");
    YarnScaling yarn = read_yarn_numbers(json, inside, 1);
    config.mscale = Real(json.positive_or(inside + ".mscale", 1));
    if (json.has(inside + ".mscale_all_dim"))
        config.mscale_all_dim = Real(json.positive_or(inside + ".mscale_all_dim", 1));
    yarn.attention_factor = yarn_mscale(yarn.factor, config.mscale) /
                            yarn_mscale(yarn.factor, config.mscale_all_dim);
    config.yarn = yarn;
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

void read_moe(const JsonFile& json, const ExpertSizes& defaults, std::size_t dense_layers,
              FamilyConfig& config) {
    config.experts = read_experts(json, "n_routed_experts", defaults);
    config.experts.moe_intermediate_size =
        json.size_or("moe_intermediate_size", defaults.moe_intermediate_size);
    config.experts.n_shared_experts =
        json.size_or("n_shared_experts", defaults.n_shared_experts);
    const std::size_t first = json.count_or("first_k_dense_replace", dense_layers);
    if (json.size_or("moe_layer_freq", 1) != 1)
        json.reject_value("moe_layer_freq", to_text(json.size("moe_layer_freq")), "1");
    for (std::size_t n = 0; n < config.layers.size(); ++n) config.layers[n].is_moe = n >= first;
    for (const char* of_training : {"aux_loss_alpha", "seq_aux", "ep_size"})
        json.ignore(of_training);
}

void expect_text(const JsonFile& json, const std::string& key, const std::string& text) {
    if (json.has(key) && json.text(key) != text) json.reject_value(key, json.text(key), text);
}

void read_deepseek_v2(const JsonFile& json, FamilyConfig& config) {
    read_latent_sizes(json, config);
    read_yarn(json, config);
    const std::size_t count = json.size("num_experts_per_tok");  // transformers has no default
    read_moe(json, {64, count, 1407, 2}, 0, config);
    expect_text(json, "scoring_func", "softmax");
    if (json.boolean_or("norm_topk_prob", false))
        json.reject_value("norm_topk_prob", "true", "false");
    const std::string method = json.has("topk_method") ? json.text("topk_method") : "greedy";
    if (method != "greedy" && method != "group_limited_greedy")
        json.reject_value("topk_method", method, "greedy and group_limited_greedy");
    config.routing = SoftmaxRouting{false, Real(json.positive_or("routed_scaling_factor", 1)),
                                    read_groups(json, config.experts, {}, method != "greedy")};
}

void read_deepseek_v3(const JsonFile& json, FamilyConfig& config) {
    read_latent_sizes(json, config);
    read_yarn(json, config);
    read_moe(json, {256, 8, 2048, 1}, 3, config);
    expect_text(json, "scoring_func", "sigmoid");
    expect_text(json, "topk_method", "noaux_tc");
    if (!json.boolean_or("rope_interleave", true))
        json.reject_value("rope_interleave", "false", "true");
    config.routing = SigmoidRouting{{},
                                    json.boolean_or("norm_topk_prob", true),
                                    Real(json.positive_or("routed_scaling_factor", 2.5)),
                                    read_groups(json, config.experts, {8, 4}, true)};
    config.num_nextn_predict_layers = json.count_or("num_nextn_predict_layers", 0);
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
    const LatentSizes& sizes = *config.latent;
    const ExpertSizes& experts = config.experts;
    json.insert(json.end(), {{"kv_lora_rank", sizes.kv_lora_rank},
                             {"qk_nope_head_dim", sizes.qk_nope_head_dim},
                             {"qk_rope_head_dim", sizes.qk_rope_head_dim},
                             {"v_head_dim", sizes.v_head_dim},
                             {"q_lora_rank", nullptr},
                             {"n_routed_experts", experts.num_experts},
                             {"num_experts_per_tok", experts.num_experts_per_tok},
                             {"moe_intermediate_size", experts.moe_intermediate_size},
                             {"n_shared_experts", experts.n_shared_experts},
                             {"first_k_dense_replace", num_dense_layers(config)}});
    // Replaces null, which is not the same as a missing key: transformers has a default.
    if (sizes.q_lora_rank) json.push_back({"q_lora_rank", *sizes.q_lora_rank});
    write_routing(config.routing, json);
    if (!config.yarn) return;
    add_yarn(*config.yarn, json);
    json.push_back({"rope_scaling.mscale", double(config.mscale)});
    if (config.mscale_all_dim > 0)
        json.push_back({"rope_scaling.mscale_all_dim", double(config.mscale_all_dim)});
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
            .attribute_map = {{"attention_bias", ""}},
            .gguf_layout = RopeLayout::interleaved,
            .reads_rope_scaling = true,
            .partial_rotary = true,  // of the absorbed heads, in GGUF files
            .latent_attention = true,
            .defaults = {32000, 4096, 11008, 32, 32, 0, 2048},
            .read = read_deepseek_v2,
            .write = write_deepseek,
            .check_gguf = check_deepseek_gguf,
            .add_gguf = add_deepseek_gguf,
            .read_gguf = read_deepseek_gguf};
}

}  // namespace

const Family& deepseek_v2_family() {
    static const Family family = deepseek_family();
    return family;
}

const Family& deepseek_v3_family() {
    static const Family family = [] {
        Family v3 = deepseek_family();
        v3.model_type = "deepseek_v3";
        v3.defaults = {129280, 7168, 18432, 61, 128, 128, 4096};
        v3.architecture = "DeepseekV3ForCausalLM";
        v3.names.correction_bias = "mlp.gate.e_score_correction_bias";
        v3.read = read_deepseek_v3;
        return v3;
    }();
    return family;
}

}  // namespace llm::models
