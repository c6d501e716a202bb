// A model of each family with random weights, which llama.cpp can express.
#pragma once

#include "chapters/models/layer_tensors.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "tests/support/published_models.hpp"

namespace llm::models {

// A visitor that fills the tensors of a model with random numbers.
struct RandomFiller {
    const FamilyConfig& config;
    Generator generator{7};

    void matrix(const std::string&, Matrix& weight, std::size_t out, std::size_t in) {
        weight = randn({out, in}, generator) * (3 / std::sqrt(Real(in)));
    }
    void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in) {
        matrix(name, linear.weight, out, in);
        if (linear.bias) bias(name, *linear.bias, out);
    }
    void router(const std::string& name, Linear& router, std::size_t out, std::size_t in) {
        linear(name, router, out, in);
    }
    void norm(const std::string&, Vector& weight, std::size_t size) {
        weight = xt::view(Matrix(randn({1, size}, generator)), 0);
        weight = weight + Real(1);
    }
    void bias(const std::string&, Vector& bias, std::size_t size) {
        bias = xt::view(Matrix(randn({1, size}, generator)), 0);
    }
    void vector(const std::string& name, Vector& values, std::size_t size) {
        bias(name, values, size);
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        for (const auto& [part, first, rows] : parts)
            linear(name, *part, first + num_groups * rows, in);
    }
    void convolution(const std::string& name, Matrix& weight, std::size_t channels,
                     std::size_t kernel_size) {
        matrix(name, weight, channels, kernel_size);
    }
    void a_log(const std::string& name, Vector& values, std::size_t size) {
        vector(name, values, size);
    }
    void rotated(const std::string& name, Linear& stored, std::size_t out, std::size_t in,
                 const RotatedRows&) {
        linear(name, stored, out, in);
    }
    void latent_up(const std::string& layer, const FamilyLayerNames&, Linear& kv_b_proj,
                   const LatentSizes& sizes) {
        linear(layer + "attn_kv_b", kv_b_proj,
               sizes.num_attention_heads * (sizes.qk_nope_head_dim + sizes.v_head_dim),
               sizes.kv_lora_rank);
    }
    void experts(const std::string& name, const FamilyLayerNames&, const MoeConfig& moe,
                 std::vector<Expert>& experts) {
        const std::size_t C = config.hidden_size, F = moe.sizes.moe_intermediate_size;
        for (Expert& expert : experts)
            std::visit(
                [&](auto& mlp) {
                    linear(name, mlp.gate_proj, F, C);
                    linear(name, mlp.up_proj, F, C);
                    linear(name, mlp.down_proj, C, F);
                },
                expert);
    }
};

// The members of a config.json that llama.cpp can express, besides the sizes.
inline const std::map<std::string, std::string> exportable = {
    {"gpt2", ""},
    {"gemma", ""},
    {"gemma2", R"(, "sliding_window": 5, "query_pre_attn_scalar": 6,
                  "attn_logit_softcapping": 2.0, "final_logit_softcapping": 10.0)"},
    {"gemma3_text", R"(, "sliding_window": 5, "query_pre_attn_scalar": 6, "rope_theta": 500.0,
                       "rope_scaling": {"rope_type": "linear", "factor": 4.0})"},
    {"smollm3", R"(, "rope_theta": 500.0)"},
    {"granite", R"(, "embedding_multiplier": 3.0, "attention_multiplier": 0.3,
                   "residual_multiplier": 0.4, "logits_scaling": 2.5)"},
    {"olmo2", R"(, "rms_norm_eps": 0.001)"},
    {"phi3", R"(, "sliding_window": 64, "partial_rotary_factor": 0.67,
                "original_max_position_embeddings": 12, "rope_scaling": {"type": "longrope",
                "short_factor": [1.0, 2.0], "long_factor": [3.0, 9.5]})"},
    {"cohere2", R"(, "sliding_window": 5, "logit_scale": 0.3)"},
    {"mixtral", R"(, "num_local_experts": 5, "num_experts_per_tok": 2)"},
    {"qwen3_moe", R"(, "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": true,
                     "moe_intermediate_size": 10)"},
    {"gpt_oss", R"(, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5,
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0,
                   "beta_slow": 1.0, "original_max_position_embeddings": 16,
                   "truncate": true})"},
    {"llama4_text", R"(, "intermediate_size_mlp": 18, "num_local_experts": 5,
                       "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
                       "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                       "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                       "original_max_position_embeddings": 64})"},
    {"deepseek_v2", R"(, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
                       "qk_rope_head_dim": 4, "v_head_dim": 5, "q_lora_rank": 9,
                       "moe_intermediate_size": 10, "n_routed_experts": 6,
                       "num_experts_per_tok": 2, "n_shared_experts": 2,
                       "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 0.7,
                       "mscale_all_dim": 0.7, "original_max_position_embeddings": 16}, "first_k_dense_replace": 1,
                       "routed_scaling_factor": 1.5)"},
    {"deepseek_v3", R"(, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
                       "qk_rope_head_dim": 4, "v_head_dim": 5, "q_lora_rank": 9,
                       "moe_intermediate_size": 10, "n_routed_experts": 6,
                       "num_experts_per_tok": 2, "n_shared_experts": 2,
                       "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 0.7,
                       "mscale_all_dim": 0.7, "original_max_position_embeddings": 16}, "first_k_dense_replace": 2,
                       "n_group": 3, "topk_group": 2, "norm_topk_prob": false)"},
    {"qwen3_next", R"(, "full_attention_interval": 3, "partial_rotary_factor": 0.67,
                      "linear_num_key_heads": 2, "linear_num_value_heads": 6,
                      "linear_key_head_dim": 5, "linear_value_head_dim": 5,
                      "linear_conv_kernel_dim": 3, "num_experts": 5, "num_experts_per_tok": 3,
                      "moe_intermediate_size": 10, "shared_expert_intermediate_size": 9)"}};

// A family of the list, or a fixture with a llama_cpp.json: a config.json that llama.cpp can
// express.
inline std::vector<std::string> exportable_models() {
    std::vector<std::string> names;
    for (const auto& [type, members] : exportable) names.push_back(type);
    for (const std::string& name : family_fixtures())
        if (fs::exists(fs::path(fixture_path(name)) / "llama_cpp.json")) names.push_back(name);
    return names;
}

inline FamilyModel random_model(const std::string& name) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "config.json";
    if (name == "gpt2") {
        overwrite(file, R"({"model_type": "gpt2", "n_embd": 24, "n_inner": 14, "n_layer": 4,
                            "n_head": 4, "n_positions": 64, "vocab_size": 1024})");
    } else if (exportable.contains(name)) {
        overwrite(file, R"({"hidden_size": 24, "intermediate_size": 14,
                            "num_attention_heads": 4, "num_key_value_heads": 2,
                            "head_dim": 6, "vocab_size": 1024,
                            "max_position_embeddings": 64, "num_hidden_layers": )" +
                            std::string(name == "gemma3_text" ? "6" : "4") +
                            R"(, "model_type": ")" + name + "\"" + exportable.at(name) + "}");
    } else {
        fs::copy_file(fs::path(fixture_path(name)) / "llama_cpp.json", file);
    }
    FamilyModel model = make_empty_model(read_family_config(open_config(file)));
    RandomFiller filler{model.config};
    const Family& family = *model.config.family;
    visit_model(model, family.model_names, family.names, family.layout.rope, filler);
    return model;
}

}  // namespace llm::models
