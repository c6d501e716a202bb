// Source: llama.cpp, conversion/lfm2.py and the architectures lfm2 and lfm2moe.
#include "chapters/models/families/lfm2.hpp"

#include "common/output/show.hpp"

namespace llm::models {
namespace {

const std::string key_value_heads = "attention.head_count_kv";  // of each layer
constexpr std::int64_t gating_by_sigmoid = 2;                   // expert_gating_func

}  // namespace

void check_lfm2_gguf(const FamilyConfig& config) {
    const std::string name = "export: llama.cpp's " + config.family->gguf_architecture;
    const GatedConvolutionSizes* sizes = convolution_of(config);
    require(sizes && sizes->conv_kernel_dim > 1 && !sizes->bias,
            "{} has convolutions over at least 2 tokens, without biases", name);
    const RopeParameters* rope = main_rope(config);
    require(!rope || std::holds_alternative<std::monostate>(rope->scaling),
            "{} is exported without a RoPE scaling", name);
    const MoeConfig* moe = first_moe(config);
    require(!moe == (config.family == &lfm2_family()), "{} has experts", name);
    if (!moe) return;
    const auto& routing = std::get<SigmoidRouting>(moe->routing);
    require(routing.norm_topk_prob && routing.routed_scaling_factor == 1,
            "{} normalizes the routing weights, and does not scale them", name);
    require(moe->correction_bias, "{} has biases of the experts", name);
}

void add_lfm2_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    std::vector<std::int64_t> heads;  // 0: a convolution
    for (const LayerConfig& layer : config.layers)
        heads.push_back(attention_of(layer) ? std::int64_t(config.num_key_value_heads) : 0);
    for (auto& [key, value] : metadata)
        if (key.ends_with(key_value_heads)) value = heads;
    add_gguf_size(config, "shortconv.l_cache", convolution_of(config)->conv_kernel_dim,
                  metadata);
    if (!first_moe(config)) return;
    add_gguf_size(config, "leading_dense_block_count", num_dense_layers(config), metadata);
    add_gguf_experts(config, metadata);
    metadata.emplace_back(config.family->gguf_architecture + ".expert_gating_func",
                          gating_by_sigmoid);
}

void read_lfm2_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    const auto& heads = gguf.file.integers(gguf.full(key_value_heads));
    if (heads.size() != config.layers.size())
        gguf.file.reject(gguf.full(key_value_heads) + " must have a number for each of " +
                         to_text(config.layers.size()) + " layers");
    const GatedConvolutionSizes sizes{config.hidden_size, gguf.size("shortconv.l_cache")};
    for (std::size_t n = 0; n < heads.size(); ++n) {
        if (heads[n] == 0) config.layers[n].mixer = sizes;
        if (heads[n] != 0 && heads[n] != std::int64_t(config.num_key_value_heads))
            gguf.file.reject(gguf.full(key_value_heads) +
                             " must be 0 or the same in all layers");
    }
    if (config.family == &lfm2_family()) return;
    const std::string gating = gguf.full("expert_gating_func");
    if (gguf.file.integer(gating) != gating_by_sigmoid)
        gguf.file.reject(gating + " must be 2, a sigmoid");
    const MoeConfig moe = make_experts(
        config, read_gguf_experts(gguf, "expert_feed_forward_length"), SigmoidRouting{});
    const std::size_t dense =
        gguf.has("leading_dense_block_count")
            ? std::size_t(gguf.file.integer(gguf.full("leading_dense_block_count")))
            : 0;
    set_experts(config, moe, [&](std::size_t n) { return n >= dense; });
}

FamilyLayerNames lfm2_gguf_names() {
    FamilyLayerNames names = gguf_layer_names();
    names.in_proj = "shortconv.in_proj";
    names.conv1d = "shortconv.conv";
    names.out_proj = "shortconv.out_proj";
    names.correction_bias = "exp_probs_b.bias";
    names.final_norm = "token_embd_norm";
    return names;
}

}  // namespace llm::models
