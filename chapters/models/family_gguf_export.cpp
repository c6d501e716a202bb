#include <algorithm>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/layer_tensors.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {
namespace {

struct FamilyGgufWriter : GgufTensorWriter {
    // In float32, as llama.cpp's own quantizer writes it: rounding could choose other experts.
    void router(const std::string& name, const Linear& router, std::size_t out,
                std::size_t in) {
        list.add_float32(name + ".weight", {out, in},
                         {router.weight.data(), router.weight.size()});
        if (router.bias) list.add_vector(name + ".bias", *router.bias);
    }
    void vector(const std::string& name, const Vector& values, std::size_t) {
        list.add_vector(name, values);
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<const Linear>, N>& parts,
                 std::size_t, std::size_t num_groups) {
        list.add_linear(name, fuse_groups(parts, num_groups));
    }
    void convolution(const std::string& name, const Matrix& weight, std::size_t channels,
                     std::size_t kernel_size) {
        list.add_float32(name + ".weight", {channels, kernel_size},
                         {weight.data(), weight.size()});
    }
    void a_log(const std::string& name, Vector values, std::size_t) {
        for (Real& value : values) value = -std::exp(value);
        list.add_vector(name, values);
    }
    void rotated(const std::string& name, const Linear& stored, std::size_t, std::size_t,
                 const RotatedRows& rows) {
        list.add_linear(name, reorder_rows(stored, rows, split_half_index));
    }
    // W_UK transposed, (H, R, Dn), and W_UV, (H, Dv, R), for the absorbed order.
    void latent_up(const std::string& layer, const FamilyLayerNames&, const Linear& kv_b_proj,
                   const LatentSizes& sizes) {
        const std::size_t H = sizes.num_attention_heads, R = sizes.kv_lora_rank;
        const std::size_t Dn = sizes.qk_nope_head_dim, Dv = sizes.v_head_dim;
        std::vector<Real> keys, values;
        for (std::size_t h = 0; h < H; ++h) {
            const std::size_t first = h * (Dn + Dv);
            for (std::size_t r = 0; r < R; ++r)
                for (std::size_t d = 0; d < Dn; ++d)
                    keys.push_back(kv_b_proj.weight(first + d, r));
            for (std::size_t d = 0; d < Dv; ++d)
                for (std::size_t r = 0; r < R; ++r)
                    values.push_back(kv_b_proj.weight(first + Dn + d, r));
        }
        list.add_rows(layer + "attn_k_b.weight", {H, R, Dn}, keys);
        list.add_rows(layer + "attn_v_b.weight", {H, Dv, R}, values);
    }
    void experts(const std::string& layer, const FamilyLayerNames& names, const MoeConfig&,
                 const std::vector<Expert>& experts) {
        std::vector<const Linear*> gates, ups, downs;
        for (const Expert& expert : experts)
            std::visit(
                [&](const auto& mlp) {
                    gates.push_back(&mlp.gate_proj);
                    ups.push_back(&mlp.up_proj);
                    downs.push_back(&mlp.down_proj);
                },
                expert);
        stack(layer + names.expert.gate_proj, gates);
        stack(layer + names.expert.up_proj, ups);
        stack(layer + names.expert.down_proj, downs);
    }

    // The matrices of all experts as one tensor, (E, out, in), and their biases, (E, out).
    void stack(const std::string& name, const std::vector<const Linear*>& linears) {
        const auto [out, in] = dims(linears.front()->weight);
        const std::size_t E = linears.size();
        std::vector<Real> weights, biases;
        for (const Linear* linear : linears) {
            weights.insert(weights.end(), linear->weight.begin(), linear->weight.end());
            if (linear->bias)
                biases.insert(biases.end(), linear->bias->begin(), linear->bias->end());
        }
        list.add_rows(name + ".weight", {E, out, in}, weights);
        if (!biases.empty()) list.add_float32(name + ".bias", {E, out}, biases);
    }
};

}  // namespace

namespace {

// Settings that a config.json may change, and that llama.cpp's graph of the family fixes.
void reject_settings_of_config_json(const FamilyConfig& config) {
    const FamilyConfig fixed = config_with(*config.family, config);
    const auto expect = [&](bool holds, const char* what) {
        require(holds, "export: llama.cpp's {} has another {}",
                config.family->gguf_architecture, std::string_view(what));
    };
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        const LayerConfig &layer = config.layers[n], &of_code = fixed.layers[n];
        const MlpConfig *mlp = mlp_of(layer), *mlp_of_code = mlp_of(of_code);
        const MoeConfig* moe = moe_of(layer);
        const Activation& activation = mlp ? mlp->activation : moe->activation;
        expect(activation.function == mlp_of_code->activation.function, "activation");
        const AttentionConfig *attention = attention_of(layer),
                              *attention_of_code = attention_of(of_code);
        expect((mlp ? mlp->bias : moe->bias) == mlp_of_code->bias &&
                   (!attention || attention->bias == attention_of_code->bias),
               "choice of biases");
    }
}

GgufMetadata settings_of(const FamilyConfig& config, DType dtype) {
    const Family& family = *config.family;
    GgufMetadata metadata = {{"general.architecture", family.gguf_architecture}};
    if (block_size(dtype) > 1)
        metadata.emplace_back("general.quantization_version", std::int64_t{2});
    const bool rms_norm = config.norm_type == NormType::rms_norm;
    for (const auto& entry :
         size_metadata(family.gguf_architecture, config,
                       rms_norm ? gguf_rms_norm_eps : "attention.layer_norm_epsilon"))
        metadata.push_back(entry);
    if (const RopeParameters* rope = main_rope(config))
        for (auto& [key, value] : metadata)
            if (key.ends_with("rope.dimension_count")) value = std::int64_t(rope->rotary_dim);
    family.add_gguf(config, metadata);
    return metadata;
}

// Llama 3's scaling as divisors of the frequencies, and LongRoPE's divisors. llama.cpp knows
// others by its metadata, if its graph of the family reads them.
void add_rope_factors(const FamilyConfig& config, const GgufMetadata& metadata,
                      GgufTensorList& list) {
    const RopeParameters* rope = main_rope(config);
    if (!rope) return;
    const bool in_metadata = std::any_of(
        metadata.begin(), metadata.end(),
        [](const auto& entry) { return entry.first.ends_with(".rope.scaling.type"); });
    const auto* divisors = std::get_if<FrequencyFactors>(&rope->scaling);
    const bool is_linear =
        divisors && xt::all(xt::equal(divisors->factors, divisors->factors(0)));
    require(in_metadata || (!is_linear && !std::holds_alternative<YarnScaling>(rope->scaling)),
            "export: llama.cpp's {} has another RoPE scaling",
            config.family->gguf_architecture);
    if (divisors && !is_linear) list.add_vector(gguf_rope_factors, divisors->factors);
    if (const auto* llama3 = std::get_if<Llama3Scaling>(&rope->scaling)) {
        const Vector plain = inverse_frequencies(rope->rotary_dim, rope->rope_theta);
        list.add_vector(gguf_rope_factors, plain / scale_like_llama3(plain, *llama3));
    }
    if (const LongRopeScaling* longrope = longrope_of(config)) {
        list.add_vector(gguf_long_factors, longrope->long_factor);
        list.add_vector(gguf_short_factors, longrope->short_factor);
    }
}

}  // namespace

std::vector<TensorInOtherDType> export_gguf(const FamilyModel& model,
                                            const Tokenizer& tokenizer, const std::string& file,
                                            DType dtype) {
    const FamilyConfig& config = model.config;
    const Family& family = *config.family;
    reject_existing(file);
    reject_settings_of_config_json(config);
    family.check_gguf(config);
    GgufMetadata metadata = settings_of(config, dtype);
    GgufTensorList list(dtype);
    add_rope_factors(config, metadata, list);
    for (const auto& entry : tokenizer_metadata(tokenizer, config.vocab_size))
        metadata.push_back(entry);
    FamilyGgufWriter writer{{list}};
    visit_model(model, gguf_model_names(family), family.gguf_names, family.gguf_layout, writer);
    write_gguf(file, metadata, list.tensors());
    return list.in_other_dtype();
}

}  // namespace llm::models
