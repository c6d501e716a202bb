// Mixtral: a Mistral with a mixture of experts in every layer. Source: Hugging Face,
// modeling_mixtral.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void set_mixtures(FamilyConfig& config, const ExpertSizes& sizes) {
    set_experts(config, make_experts(config, sizes, SoftmaxRouting{}),
                [](std::size_t) { return true; });
}

void read_mixtral(const JsonFile& json, FamilyConfig& config) {
    json.ignore("use_sliding_window");  // the window alone decides
    set_mixtures(config,
                 read_experts(json, "num_local_experts", {8, 2, config.intermediate_size, 0}));
    if (json.has("sliding_window"))
        set_patterns(config, {config.num_hidden_layers,
                              AttentionPattern{SlidingWindow{json.size("sliding_window")}}});
}

void write_mixtral(const FamilyConfig& config, JsonMembers& json) {
    const ExpertSizes& sizes = first_moe(config)->sizes;
    json.insert(json.end(), {{"num_experts_per_tok", sizes.num_experts_per_tok},
                             {"num_local_experts", sizes.num_experts}});
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
}

void add_mixtral_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const ExpertSizes& sizes = first_moe(config)->sizes;
    add_gguf_size(config, "expert_count", sizes.num_experts, metadata);
    add_gguf_size(config, "expert_used_count", sizes.num_experts_per_tok, metadata);
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
                      .gguf_layout = RopeLayout::interleaved,
                      .attribute_map = {{"attention_bias", ""}},
                      .defaults = {32000, 4096, 14336, 32, 32, 8, 131072, 0, 1e-5, 1'000'000},
                      .read = read_mixtral,
                      .write = write_mixtral,
                      .check_gguf = reject_windows_of_llama,
                      .add_gguf = add_mixtral_gguf,
                      .read_gguf = [](const GgufSettings& gguf, FamilyConfig& config) {
                          set_mixtures(config, read_gguf_experts(gguf, "feed_forward_length"));
                      }};
    }();
    return family;
}

}  // namespace llm::models
