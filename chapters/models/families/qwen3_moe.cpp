// Qwen3-MoE: a Qwen3 with a mixture of many small experts in all layers or in some. Source:
// Hugging Face, modeling_qwen3_moe.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void build_qwen3_moe(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::with_weights;
}

void read_qwen3_moe(const JsonFile& json, FamilyConfig& config) {
    json.ignore("sliding_window");  // without use_sliding_window, it has no effect
    if (json.boolean_or("use_sliding_window", false) && !json.is_null("sliding_window"))
        set_patterns(config,
                     {config.num_hidden_layers,
                      AttentionPattern{SlidingWindow{json.size_or("sliding_window", 4096)}}});
    const ExpertSizes sizes = read_experts(
        json, "num_experts", {128, 8, json.size_or("moe_intermediate_size", 768), 0});
    const SoftmaxRouting routing{json.boolean_or("norm_topk_prob", false)};
    read_moe_layers(json, make_experts(config, sizes, routing), config);
}

void write_qwen3_moe(const FamilyConfig& config, JsonMembers& json) {
    if (const MoeConfig* moe = first_moe(config))
        json.insert(json.end(), {{"num_experts_per_tok", moe->sizes.num_experts_per_tok},
                                 {"num_experts", moe->sizes.num_experts},
                                 {"moe_intermediate_size", moe->sizes.moe_intermediate_size},
                                 {"norm_topk_prob",
                                  std::get<SoftmaxRouting>(moe->routing).norm_topk_prob}});
    if (const auto window = sliding_window(config))
        json.insert(json.end(), {{"use_sliding_window", true}, {"sliding_window", *window}});
    add_moe_layers(config, json);
}

void check_qwen3_moe_gguf(const FamilyConfig& config) {
    reject_dense_layers(config);
    require(std::get<SoftmaxRouting>(first_moe(config)->routing).norm_topk_prob,
            "export: llama.cpp's qwen3moe normalizes the routing weights");
    require(!sliding_window(config), "export: llama.cpp's qwen3moe has no windows");
}

void read_qwen3_moe_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    const ExpertSizes sizes = read_gguf_experts(gguf, "expert_feed_forward_length");
    set_experts(config, make_experts(config, sizes, SoftmaxRouting{true}),
                [](std::size_t) { return true; });
}

}  // namespace

const Family& qwen3_moe_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names();
        names.router = "mlp.gate";
        names.experts = "mlp.experts.";
        names.expert = {"gate_proj", "up_proj", "down_proj"};
        return Family{.model_type = "qwen3_moe",
                      .architecture = "Qwen3MoeForCausalLM",
                      .gguf_architecture = "qwen3moe",
                      .names = names,
                      .gguf_names = gguf_layer_names(),
                      .defaults = {151936, 2048, 6144, 24, 32, 4, 32768},
                      .build = build_qwen3_moe,
                      .read = read_qwen3_moe,
                      .write = write_qwen3_moe,
                      .check_gguf = check_qwen3_moe_gguf,
                      .add_gguf = add_gguf_experts,
                      .read_gguf = read_qwen3_moe_gguf};
    }();
    return family;
}

}  // namespace llm::models
