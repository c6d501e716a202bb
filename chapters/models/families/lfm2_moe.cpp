// LFM2-MoE: LFM2 with experts after the first layers, which are chosen as DeepSeek-V3's. (1e-6
// in the sum of the routing weights, where DeepSeek-V3 has 1e-20, is left out.) Source: Hugging
// Face, modeling_lfm2_moe.py.
#include "chapters/models/families/lfm2.hpp"

namespace llm::models {
namespace {

void read_lfm2_moe(const JsonFile& json, FamilyConfig& config) {
    read_lfm2_layers(json, config);
    MoeConfig moe = make_experts(
        config,
        read_experts(json, "num_experts", {32, 4, json.size_or("moe_intermediate_size", 1792)}),
        SigmoidRouting{{},
                       json.boolean_or("norm_topk_prob", true),
                       Real(json.positive_or("routed_scaling_factor", 1))});
    moe.correction_bias = json.boolean_or("use_expert_bias", true);
    const std::size_t num_dense = json.count_or("num_dense_layers", 2);
    set_experts(config, moe, [&](std::size_t n) { return n >= num_dense; });
}

void write_lfm2_moe(const FamilyConfig& config, JsonMembers& json) {
    write_lfm2_layers(config, json);
    json.push_back({"num_dense_layers", num_dense_layers(config)});
    const MoeConfig* moe = first_moe(config);
    if (!moe) return;
    const auto& routing = std::get<SigmoidRouting>(moe->routing);
    json.insert(json.end(), {{"num_experts", moe->sizes.num_experts},
                             {"num_experts_per_tok", moe->sizes.num_experts_per_tok},
                             {"moe_intermediate_size", moe->sizes.moe_intermediate_size},
                             {"use_expert_bias", moe->correction_bias},
                             {"norm_topk_prob", routing.norm_topk_prob},
                             {"routed_scaling_factor", double(routing.routed_scaling_factor)}});
}

}  // namespace

const Family& lfm2_moe_family() {
    static const Family family = [] {
        Family moe = make_lfm2_family();
        moe.model_type = "lfm2_moe";
        moe.architecture = "Lfm2MoeForCausalLM";
        moe.gguf_architecture = "lfm2moe";
        moe.names.router = "feed_forward.gate";
        moe.names.correction_bias = "feed_forward.expert_bias";
        moe.names.experts = "feed_forward.experts.";
        moe.names.expert = {"w1", "w3", "w2"};
        moe.defaults = {65536, 2048, 7168, 32, 32, 8, 128'000, 0, 1e-5, 1'000'000, true};
        moe.read = read_lfm2_moe;
        moe.write = write_lfm2_moe;
        return moe;
    }();
    return family;
}

}  // namespace llm::models
