// Qwen3-MoE: a Qwen3 with a mixture of many small experts in all layers or in some. Source:
// Hugging Face, modeling_qwen3_moe.py.
#include "chapters/models/family.hpp"

namespace llm::models {
namespace {

void read_qwen3_moe(const JsonFile& json, FamilyConfig& config) {
    json.ignore("sliding_window");  // without use_sliding_window, it has no effect
    if (json.boolean_or("use_sliding_window", false) && !json.is_null("sliding_window"))
        set_patterns(config,
                     layer_patterns(config.num_hidden_layers,
                                    SlidingWindow{json.size_or("sliding_window", 4096)}, 0));
    config.experts = read_experts(json, "num_experts",
                                  {128, 8, json.size_or("moe_intermediate_size", 768), 0});
    config.routing = SoftmaxRouting{json.boolean_or("norm_topk_prob", false)};
    read_moe_layers(json, config);
}

void write_qwen3_moe(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(),
                {{"num_experts_per_tok", config.experts.num_experts_per_tok},
                 {"num_experts", config.experts.num_experts},
                 {"moe_intermediate_size", config.experts.moe_intermediate_size},
                 {"norm_topk_prob", std::get<SoftmaxRouting>(config.routing).norm_topk_prob}});
    if (const auto window = sliding_window(config))
        json.insert(json.end(), {{"use_sliding_window", true}, {"sliding_window", *window}});
    add_moe_layers(config, json);
}

void check_qwen3_moe_gguf(const FamilyConfig& config) {
    require(std::get<SoftmaxRouting>(config.routing).norm_topk_prob,
            "export: llama.cpp's qwen3moe normalizes the routing weights");
    require(!sliding_window(config), "export: llama.cpp's qwen3moe has no windows");
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(config.layers[n].is_moe,
                "export: llama.cpp's qwen3moe has a mixture in every layer; layer {} is dense",
                n);
}

void add_qwen3_moe_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const auto add_size = [&](const std::string& key, std::size_t size) {
        metadata.emplace_back("qwen3moe." + key, static_cast<std::int64_t>(size));
    };
    add_size("expert_count", config.experts.num_experts);
    add_size("expert_used_count", config.experts.num_experts_per_tok);
    add_size("expert_feed_forward_length", config.experts.moe_intermediate_size);
}

void read_qwen3_moe_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_experts(gguf, "expert_feed_forward_length", 1, config);
    config.routing = SoftmaxRouting{true};
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
                      .qk_norm = QKNormType::with_weights,
                      .read = read_qwen3_moe,
                      .write = write_qwen3_moe,
                      .check_gguf = check_qwen3_moe_gguf,
                      .add_gguf = add_qwen3_moe_gguf,
                      .read_gguf = read_qwen3_moe_gguf};
    }();
    return family;
}

}  // namespace llm::models
