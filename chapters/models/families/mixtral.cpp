// Mixtral: a Mistral with a mixture of experts in every layer. Source: Hugging Face,
// modeling_mixtral.py.
#include "chapters/models/family.hpp"

namespace llm::models {
namespace {

void read_mixtral(const JsonFile& json, FamilyConfig& config) {
    json.ignore("use_sliding_window");  // the window alone decides
    config.experts =
        read_experts(json, "num_local_experts", {8, 2, config.intermediate_size, 0});
    const std::size_t num_layers = config.num_hidden_layers;
    if (json.has("sliding_window"))
        set_patterns(config,
                     layer_patterns(num_layers, SlidingWindow{json.size("sliding_window")}, 0));
    for (LayerConfig& layer : config.layers) layer.is_moe = true;
}

void write_mixtral(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"num_experts_per_tok", config.experts.num_experts_per_tok},
                             {"num_local_experts", config.experts.num_experts}});
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
}

void add_mixtral_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    metadata.emplace_back("llama.expert_count",
                          static_cast<std::int64_t>(config.experts.num_experts));
    metadata.emplace_back("llama.expert_used_count",
                          static_cast<std::int64_t>(config.experts.num_experts_per_tok));
}

void read_mixtral_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_experts(gguf, "feed_forward_length", 1, config);
}

}  // namespace

const Family& mixtral_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names();
        names.router = "block_sparse_moe.gate";
        names.experts = "block_sparse_moe.experts.";
        names.expert = {"w1", "w3", "w2"};
        return Family{.model_type = "mixtral",
                      .architecture = "MixtralForCausalLM",
                      .gguf_architecture = "llama",
                      .names = names,
                      .gguf_names = gguf_layer_names(),
                      .attribute_map = {{"attention_bias", ""}},
                      .gguf_layout = RopeLayout::interleaved,
                      .defaults = {32000, 4096, 14336, 32, 32, 8, 131072, 0, 1e-5, 1'000'000},
                      .read = read_mixtral,
                      .write = write_mixtral,
                      .check_gguf = reject_windows_of_llama,
                      .add_gguf = add_mixtral_gguf,
                      .read_gguf = read_mixtral_gguf};
    }();
    return family;
}

}  // namespace llm::models
