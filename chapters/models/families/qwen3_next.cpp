// Qwen3-Next: three layers of Gated DeltaNet to one of attention with an output gate, whose
// RoPE rotates a quarter of each head; many small experts, and a shared one with a gate.
// Source: Hugging Face, modeling_qwen3_next.py.
#include "chapters/models/families/qwen3_next_gguf.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// Every full_attention_interval-th layer has full attention, unless layer_types lists them.
void read_linear_layers(const JsonFile& json, FamilyConfig& config) {
    const std::size_t interval = json.size_or("full_attention_interval", 4);
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        config.layers[n].is_linear = (n + 1) % interval != 0;
    if (!json.has("layer_types")) return;
    const auto types = json.text_lists("layer_types");
    if (types.size() != config.layers.size())
        json.reject("layer_types has " + to_text(types.size()) + " entries for " +
                    to_text(config.layers.size()) + " layers");
    for (std::size_t n = 0; n < types.size(); ++n) {
        const std::string type = types[n].empty() ? "" : types[n].front();
        if (type != "linear_attention" && type != "full_attention")
            json.reject_value("layer_types", type, "full_attention and linear_attention");
        config.layers[n].is_linear = type == "linear_attention";
    }
}

void read_qwen3_next(const JsonFile& json, FamilyConfig& config) {
    const std::string inside = rope_object(json, false);
    read_partial_rotary_factor(json, inside, 0.25, config);
    read_linear_layers(json, config);
    config.linear = LinearSizes{config.hidden_size,
                                json.size_or("linear_num_key_heads", 16),
                                json.size_or("linear_num_value_heads", 32),
                                json.size_or("linear_key_head_dim", 128),
                                json.size_or("linear_value_head_dim", 128),
                                json.size_or("linear_conv_kernel_dim", 4)};
    if (config.linear->num_value_heads % config.linear->num_key_heads != 0)
        json.reject("linear_num_key_heads", "must divide linear_num_value_heads, " +
                                                to_text(config.linear->num_value_heads));
    config.experts = read_experts(json, "num_experts",
                                  {512, 10, json.size_or("moe_intermediate_size", 512), 1});
    config.experts.shared_expert_intermediate_size =
        json.size_or("shared_expert_intermediate_size", 512);
    config.routing = SoftmaxRouting{json.boolean_or("norm_topk_prob", true)};
    read_moe_layers(json, config);
}

void write_qwen3_next(const FamilyConfig& config, JsonMembers& json) {
    const LinearSizes& linear = *config.linear;
    std::vector<std::string> types;
    for (const LayerConfig& layer : config.layers)
        types.push_back(layer.is_linear ? "linear_attention" : "full_attention");
    json.insert(json.end(),
                {{"layer_types", types},
                 {"partial_rotary_factor", config.partial_rotary_factor},
                 {"linear_num_key_heads", linear.num_key_heads},
                 {"linear_num_value_heads", linear.num_value_heads},
                 {"linear_key_head_dim", linear.key_head_dim},
                 {"linear_value_head_dim", linear.value_head_dim},
                 {"linear_conv_kernel_dim", linear.conv_kernel_dim},
                 {"num_experts_per_tok", config.experts.num_experts_per_tok},
                 {"num_experts", config.experts.num_experts},
                 {"moe_intermediate_size", config.experts.moe_intermediate_size},
                 {"shared_expert_intermediate_size", config.experts.shared_width()},
                 {"norm_topk_prob", std::get<SoftmaxRouting>(config.routing).norm_topk_prob}});
    add_moe_layers(config, json);
}

FamilyLayerNames names_in_safetensors() {
    FamilyLayerNames names = hugging_face_layer_names();
    names.router = "mlp.gate";
    names.experts = "mlp.experts.";
    names.expert = {"gate_proj", "up_proj", "down_proj"};
    names.shared_expert = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
                           "mlp.shared_expert.down_proj"};
    names.shared_gate = "mlp.shared_expert_gate";
    names.in_proj_qkvz = "linear_attn.in_proj_qkvz";
    names.in_proj_ba = "linear_attn.in_proj_ba";
    names.conv1d = "linear_attn.conv1d";
    names.A_log = "linear_attn.A_log";
    names.dt_bias = "linear_attn.dt_bias";
    names.state_norm = "linear_attn.norm.weight";
    names.out_proj = "linear_attn.out_proj";
    return names;
}

}  // namespace

const Family& qwen3_next_family() {
    static const Family family{.model_type = "qwen3_next",
                               .architecture = "Qwen3NextForCausalLM",
                               .gguf_architecture = "qwen3next",
                               .names = names_in_safetensors(),
                               .gguf_names = qwen3_next_gguf_names(),
                               .unused_tensors = {"mtp."},
                               .nextn_layers = "mtp.layers.",
                               .norms_add_one = true,
                               .partial_rotary = true,
                               .output_gate = true,
                               .defaults = {151936, 2048, 5632, 48, 16, 2, 32768, 256},
                               .qk_norm = QKNormType::with_weights,
                               .read = read_qwen3_next,
                               .write = write_qwen3_next,
                               .check_gguf = check_qwen3_next_gguf,
                               .add_gguf = add_qwen3_next_gguf,
                               .read_gguf = read_qwen3_next_gguf};
    return family;
}

}  // namespace llm::models
