// Source: llama.cpp, conversion/qwen.py and the architectures qwen3next, qwen35 and qwen35moe.
#include "chapters/models/families/qwen3_next.hpp"

namespace llm::models {
namespace {

// The interval of layers with full attention, or L + 1 if there are none.
std::size_t full_interval(const FamilyConfig& config) {
    std::size_t interval = 1;
    while (interval <= config.layers.size() && !attention_of(config.layers[interval - 1]))
        ++interval;
    return interval;
}

const LinearSizes& linear_of(const FamilyConfig& config) {
    return std::get<LinearSizes>(config.layers.front().mixer);
}

}  // namespace

void check_linear_layers_gguf(const FamilyConfig& config) {
    const std::string& name = config.family->gguf_architecture;
    const std::size_t interval = full_interval(config);
    require(interval > 1, "export: llama.cpp's {} begins with linear attention", name);
    const LinearSizes& linear = linear_of(config);
    require(linear.key_head_dim == linear.value_head_dim,
            "export: llama.cpp's {} has one size of keys and values, not {} and {}", name,
            linear.key_head_dim, linear.value_head_dim);
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(!attention_of(config.layers[n]) == ((n + 1) % interval != 0),
                "export: llama.cpp's {} has full attention at one interval, {}; layer {} "
                "differs",
                name, interval, n);
}

void add_linear_layers_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const LinearSizes& linear = linear_of(config);
    const auto add_size = [&](const std::string& key, std::size_t size) {
        add_gguf_size(config, key, size, metadata);
    };
    add_size("full_attention_interval", full_interval(config));
    add_size("ssm.conv_kernel", linear.conv_kernel_dim);
    add_size("ssm.state_size", linear.key_head_dim);
    add_size("ssm.group_count", linear.num_key_heads);
    add_size("ssm.time_step_rank", linear.num_value_heads);
    add_size("ssm.inner_size", linear.num_value_heads * linear.value_head_dim);
}

void add_gated_experts_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_experts(config, metadata);
    add_gguf_size(config, "expert_shared_feed_forward_length",
                  first_moe(config)->sizes.shared_width(), metadata);
}

void read_linear_layers_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    const std::size_t interval =
        gguf.has("full_attention_interval") ? gguf.size("full_attention_interval") : 4;
    const std::size_t value_heads = gguf.size("ssm.time_step_rank"),
                      key_heads = gguf.size("ssm.group_count"),
                      inner_size = gguf.size("ssm.inner_size");
    if (inner_size % value_heads != 0 || value_heads % key_heads != 0)
        gguf.file.reject(gguf.full("ssm.time_step_rank") +
                         " must divide ssm.inner_size, and be a multiple of ssm.group_count");
    const LinearSizes linear{config.hidden_size,
                             key_heads,
                             value_heads,
                             gguf.size("ssm.state_size"),
                             inner_size / value_heads,
                             gguf.size("ssm.conv_kernel")};
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if ((n + 1) % interval != 0) config.layers[n].mixer = linear;
}

void read_gated_experts_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    ExpertSizes sizes = read_gguf_experts(gguf, "expert_feed_forward_length");
    sizes.n_shared_experts = 1;
    sizes.shared_expert_intermediate_size = gguf.size("expert_shared_feed_forward_length");
    MoeConfig moe = make_experts(config, sizes, SoftmaxRouting{true});
    moe.shared_gate = true;
    set_experts(config, moe, [](std::size_t) { return true; });
}

FamilyLayerNames gated_layer_gguf_names() {
    FamilyLayerNames names = gguf_layer_names();
    names.ffn_norm = "post_attention_norm";
    names.shared_gate = "ffn_gate_inp_shexp";
    names.in_proj_qkv = "attn_qkv";
    names.in_proj_z = "attn_gate";
    names.conv1d = "ssm_conv1d";
    names.A_log = "ssm_a";
    names.dt_bias = "ssm_dt.bias";
    names.state_norm = "ssm_norm.weight";
    names.out_proj = "ssm_out";
    return names;
}

}  // namespace llm::models
