// GPT-2: learned positions instead of RoPE, LayerNorm and biases everywhere, an MLP without a
// gate. Its linear layers are stored as (in, out), those of queries, keys and values as one.
// Source: Hugging Face, modeling_gpt2.py; Radford et al., 2019.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

// In Hugging Face, gelu_new is the approximation with tanh.
constexpr Activation gelu_new{"gelu_new", gelu_tanh, gelu_tanh_derivative};

void build_gpt2(FamilyConfig& config) {
    config.norm_type = NormType::layer_norm;
    config.learned_positions = true;
    for (LayerConfig& layer : config.layers) {
        attention_of(layer)->rope.reset();
        attention_of(layer)->bias = AttentionBias::qkvo;
        layer.mlp = MlpConfig{config.intermediate_size, gelu_new, true, false};
    }
}

void read_gpt2(const JsonFile& json, FamilyConfig&) {
    for (const auto& [key, supported] : {std::pair{"scale_attn_weights", true},
                                         {"scale_attn_by_inverse_layer_idx", false},
                                         {"add_cross_attention", false}})
        if (json.boolean_or(key, supported) != supported)
            json.reject_value(key, supported ? "false" : "true", supported ? "true" : "false");
    // Rounding, and heads for other tasks.
    for (const char* key :
         {"reorder_and_upcast_attn", "n_ctx", "n_special", "predict_special_tokens",
          "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
          "summary_type", "summary_use_proj", "task_specific_params"})
        json.ignore(key);
}

Family make_gpt2_family() {
    FamilyLayerNames names, in_gguf = gguf_layer_names();
    names.attention_norm = "ln_1";
    names.qkv_proj = "attn.c_attn";
    names.o_proj = "attn.c_proj";
    names.ffn_norm = "ln_2";
    names.mlp = {"", "mlp.c_fc", "mlp.c_proj"};
    in_gguf.qkv_proj = "attn_qkv";
    return {.model_type = "gpt2",
            .architecture = "GPT2LMHeadModel",
            .gguf_architecture = "gpt2",
            .names = names,
            .gguf_names = in_gguf,
            .model_names = {"transformer.wte",
                            "transformer.h.",
                            "transformer.ln_f",
                            "lm_head",
                            {},
                            "transformer.wpe"},
            .layout = {.transposed = true},
            .unused_tensors = {".attn.bias", ".attn.masked_bias"},  // causal masks
            .attribute_map = {{"hidden_size", "n_embd"},
                              {"intermediate_size", "n_inner"},
                              {"num_hidden_layers", "n_layer"},
                              {"num_attention_heads", "n_head"},
                              {"num_key_value_heads", ""},
                              {"head_dim", ""},
                              {"max_position_embeddings", "n_positions"},
                              {"rms_norm_eps", "layer_norm_epsilon"},
                              {"rope_theta", ""},
                              {"attention_bias", ""},
                              {"hidden_act", "activation_function"}},
            .defaults = {50257, 768, 0, 12, 12, 0, 1024, 0, 1e-5, 0, true, 4},
            .build = build_gpt2,
            .read = read_gpt2};
}

}  // namespace

const Family& gpt2_family() {
    static const Family family = make_gpt2_family();
    return family;
}

}  // namespace llm::models
