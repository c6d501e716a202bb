#include "chapters/models/family_gguf.hpp"

#include "chapters/models/family_keys.hpp"
#include "chapters/models/layer_tensors.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"

namespace llm::models {

TensorNames gguf_model_names(const Family& family) {
    TensorNames names = gguf_names;
    if (!family.gguf_names.final_norm.empty()) names.norm = family.gguf_names.final_norm;
    return names;
}

namespace {

struct FamilyGgufReader : TensorReader<GgufTensors> {
    const FamilyConfig& config;

    void router(const std::string& name, Linear& router, std::size_t out, std::size_t in) {
        linear(name, router, out, in);
    }
    void vector(const std::string& name, Vector& values, std::size_t size) {
        values = tensors.read(name, {size});
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        split_groups(*this, name, parts, in, num_groups);
    }
    void convolution(const std::string& name, Matrix& weight, std::size_t channels,
                     std::size_t kernel_size) {
        weight = tensors.read(name + ".weight", {channels, kernel_size});
    }
    void a_log(const std::string& name, Vector& values, std::size_t size) {
        vector(name, values, size);
        for (Real& value : values) {
            if (!(value < 0)) tensors.reject(name + " must be below 0");
            value = std::log(-value);
        }
    }
    void rotated(const std::string& name, Linear& stored, std::size_t out, std::size_t in,
                 const RotatedRows& rows) {
        linear(name, stored, out, in);
        stored = reorder_rows(stored, rows, interleaved_index);
    }
    void latent_up(const std::string& layer, const FamilyLayerNames&, Linear& kv_b_proj,
                   const LatentSizes& sizes) {
        const std::size_t H = sizes.num_attention_heads, R = sizes.kv_lora_rank;
        const std::size_t Dn = sizes.qk_nope_head_dim, Dv = sizes.v_head_dim;
        // The matrix itself, in files of before April 2025; some have it besides the others.
        const std::string whole = layer + "attn_kv_b";
        if (tensors.has(whole + ".weight")) linear(whole, kv_b_proj, H * (Dn + Dv), R);
        if (!tensors.has(layer + "attn_k_b.weight") && tensors.has(whole + ".weight")) return;
        const Tensor3 keys = tensors.read(layer + "attn_k_b.weight", {H, R, Dn});
        const Tensor3 values = tensors.read(layer + "attn_v_b.weight", {H, Dv, R});
        kv_b_proj.weight = Matrix(std::array{H * (Dn + Dv), R});
        for (std::size_t h = 0; h < H; ++h)
            for (std::size_t r = 0; r < R; ++r) {
                const std::size_t first = h * (Dn + Dv);
                for (std::size_t d = 0; d < Dn; ++d)
                    kv_b_proj.weight(first + d, r) = keys(h, r, d);
                for (std::size_t d = 0; d < Dv; ++d)
                    kv_b_proj.weight(first + Dn + d, r) = values(h, d, r);
            }
    }
    void experts(const std::string& layer, const FamilyLayerNames& names, const MoeConfig& moe,
                 std::vector<Expert>& experts) {
        const std::size_t C = config.hidden_size, F = moe.sizes.moe_intermediate_size;
        stacked(layer + names.expert.gate_proj, experts, F, C,
                [](auto& mlp) -> Linear& { return mlp.gate_proj; });
        stacked(layer + names.expert.up_proj, experts, F, C,
                [](auto& mlp) -> Linear& { return mlp.up_proj; });
        stacked(layer + names.expert.down_proj, experts, C, F,
                [](auto& mlp) -> Linear& { return mlp.down_proj; });
    }

    // One matrix of all experts, from (E, out, in), and its biases, from (E, out).
    template <class MatrixOf>
    void stacked(const std::string& name, std::vector<Expert>& experts, std::size_t out,
                 std::size_t in, const MatrixOf& matrix_of) {
        // Files of before April 2024 have a tensor for each expert: "ffn_gate.0".
        const std::string each = name.substr(0, name.rfind("_exps")) + ".";
        if (!tensors.has(name + ".weight") && tensors.has(each + "0.weight")) {
            for (std::size_t e = 0; e < experts.size(); ++e)
                std::visit(
                    [&](auto& mlp) {
                        linear(each + std::to_string(e), matrix_of(mlp), out, in);
                    },
                    experts[e]);
            return;
        }
        const Tensor3 weights = tensors.read(name + ".weight", {experts.size(), out, in});
        Matrix biases;
        for (std::size_t e = 0; e < experts.size(); ++e)
            std::visit(
                [&](auto& mlp) {
                    Linear& linear = matrix_of(mlp);
                    linear.weight = xt::view(weights, e);
                    if (!linear.bias) return;
                    if (e == 0) biases = tensors.read(name + ".bias", {experts.size(), out});
                    linear.bias = xt::view(biases, e);
                },
                experts[e]);
    }
};

}  // namespace

FamilyModel load_family_gguf(const std::string& path) {
    const Gguf file(path);
    FamilyConfig config = read_family_config(file);
    const Family& family = *config.family;
    file.reject_other_types();
    GgufTensors tensors(file);
    if (file.has_tensor(gguf_rope_factors))
        set_rope_scaling(config, FrequencyFactors{file.read(
                                     gguf_rope_factors, {main_rope(config)->rotary_dim / 2})});
    if (const auto* longrope = longrope_of(config)) {
        LongRopeScaling scaling = *longrope;
        const std::size_t num_pairs = main_rope(config)->rotary_dim / 2;
        scaling.long_factor = tensors.read(gguf_long_factors, {num_pairs});
        scaling.short_factor = tensors.read(gguf_short_factors, {num_pairs});
        set_rope_scaling(config, scaling);
    }
    check_experts(config, tensors, gguf_names, family.gguf_names);
    FamilyModel model = make_empty_model(config);
    FamilyGgufReader reader{{tensors}, model.config};
    TensorNames names = gguf_model_names(family);
    // Ollama's files have output_norm also where llama.cpp's have not.
    if (!tensors.has(names.norm + ".weight")) names.norm = gguf_names.norm;
    visit_model(model, names, family.gguf_names, family.gguf_layout, reader);
    // Layers for multi-token prediction follow those of the model.
    for (std::size_t n = 0; n < config.num_nextn_predict_layers; ++n)
        tensors.ignore(gguf_names.layer + to_text(config.num_hidden_layers + n) + ".");
    tensors.reject_unread();
    return model;
}

}  // namespace llm::models
