// What Qwen3-Next and Qwen3.5 share.
#include "chapters/models/families/qwen3_next.hpp"
#include "common/output/show.hpp"

namespace llm::models {

void build_gated_attention(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers) {
        AttentionConfig& attention = *attention_of(layer);
        attention.qk_norm = QKNormType::with_weights;
        attention.output_gate = true;
        attention.rope->rotary_dim = config.head_dim / 4;
    }
}

namespace {

// layer_types, or every full_attention_interval-th layer has full attention.
std::vector<bool> read_is_linear(const JsonFile& json, std::size_t num_layers) {
    const std::size_t interval = json.size_or("full_attention_interval", 4);
    if (json.has("layer_types"))
        return read_layer_kinds(json, "layer_types", "linear_attention", "full_attention",
                                num_layers);
    std::vector<bool> is_linear;
    for (std::size_t n = 0; n < num_layers; ++n) is_linear.push_back((n + 1) % interval != 0);
    return is_linear;
}

}  // namespace

void read_linear_layers(const JsonFile& json, FamilyConfig& config) {
    const LinearSizes linear{config.hidden_size,
                             json.size_or("linear_num_key_heads", 16),
                             json.size_or("linear_num_value_heads", 32),
                             json.size_or("linear_key_head_dim", 128),
                             json.size_or("linear_value_head_dim", 128),
                             json.size_or("linear_conv_kernel_dim", 4)};
    if (linear.num_value_heads % linear.num_key_heads != 0)
        json.reject("linear_num_key_heads",
                    "must divide linear_num_value_heads, " + to_text(linear.num_value_heads));
    const std::vector<bool> is_linear = read_is_linear(json, config.layers.size());
    for (std::size_t n = 0; n < is_linear.size(); ++n)
        if (is_linear[n]) config.layers[n].mixer = linear;
}

void add_linear_layers(const FamilyConfig& config, JsonMembers& members) {
    std::vector<std::string> types;
    const LinearSizes* linear = nullptr;
    for (const LayerConfig& layer : config.layers) {
        types.push_back(attention_of(layer) ? "full_attention" : "linear_attention");
        if (!attention_of(layer)) linear = std::get_if<LinearSizes>(&layer.mixer);
    }
    members.push_back({"layer_types", types});
    if (linear)
        members.insert(members.end(), {{"linear_num_key_heads", linear->num_key_heads},
                                       {"linear_num_value_heads", linear->num_value_heads},
                                       {"linear_key_head_dim", linear->key_head_dim},
                                       {"linear_value_head_dim", linear->value_head_dim},
                                       {"linear_conv_kernel_dim", linear->conv_kernel_dim}});
}

MoeConfig read_gated_experts(const JsonFile& json, const ExpertSizes& defaults,
                             const Routing& routing, const FamilyConfig& config) {
    ExpertSizes sizes = read_experts(json, "num_experts", defaults);
    sizes.moe_intermediate_size =
        json.size_or("moe_intermediate_size", defaults.moe_intermediate_size);
    sizes.n_shared_experts = 1;
    sizes.shared_expert_intermediate_size =
        json.size_or("shared_expert_intermediate_size", 512);
    MoeConfig moe = make_experts(config, sizes, routing);
    moe.shared_gate = true;
    return moe;
}

void add_gated_experts(const FamilyConfig& config, JsonMembers& members) {
    if (const MoeConfig* moe = first_moe(config))
        members.insert(members.end(),
                       {{"num_experts_per_tok", moe->sizes.num_experts_per_tok},
                        {"num_experts", moe->sizes.num_experts},
                        {"shared_expert_intermediate_size", moe->sizes.shared_width()}});
}

FamilyLayerNames gated_layer_names() {
    FamilyLayerNames names = hugging_face_layer_names();
    names.router = "mlp.gate";
    names.experts = "mlp.experts.";
    names.expert = {"gate_proj", "up_proj", "down_proj"};
    names.shared_expert = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
                           "mlp.shared_expert.down_proj"};
    names.shared_gate = "mlp.shared_expert_gate";
    names.conv1d = "linear_attn.conv1d";
    names.A_log = "linear_attn.A_log";
    names.dt_bias = "linear_attn.dt_bias";
    names.state_norm = "linear_attn.norm.weight";
    names.out_proj = "linear_attn.out_proj";
    return names;
}

}  // namespace llm::models
