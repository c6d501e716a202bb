// Where the tensors of a published model stand in a file: chapter 09's visit_model for its
// layers.
#pragma once

#include "chapters/models/published_model.hpp"

namespace llm {

// Besides chapter 09's members, a visitor has these:
//
//     void router(...);  // as linear, of a mixture of experts
//     void vector(const std::string& name, Vector& values, std::size_t size);  // no suffix
//     void experts(const std::string& layer, const PublishedLayerNames& names,
//                  std::vector<Expert>& experts);
//     // Linear layers, one below the other in one matrix: Phi-3, GPT-2.
//     void fused(const std::string& name, const std::array<Linear*, N>& linears,
//                const std::array<std::size_t, N>& out, std::size_t in);
//     // As linear; in the file, the last "rotated" rows of each head are interleaved pairs.
//     void rotated_last(const std::string& name, Linear& linear, std::size_t out,
//                       std::size_t in, std::size_t num_heads, std::size_t rotated);
//     // kv_b_proj, (H*(Dn + Dv), R); in GGUF files as two tensors.
//     void latent_up(const std::string& layer, const PublishedLayerNames& names,
//                    Linear& kv_b_proj, const LatentSizes& sizes);
//
// AnyLayer, AnyAttention and AnyMlp may be const.

// The rows of all matrices, one below the other, and their biases, if they have any.
template <class AnyLinear, std::size_t N>
Linear fuse(const std::array<AnyLinear*, N>& linears) {
    std::vector<Real> weights, biases;
    for (const Linear* linear : linears) {
        weights.insert(weights.end(), linear->weight.begin(), linear->weight.end());
        if (linear->bias)
            biases.insert(biases.end(), linear->bias->begin(), linear->bias->end());
    }
    const std::size_t in = linears.front()->weight.shape(1);
    Linear fused{Matrix(std::array{weights.size() / in, in}), std::nullopt};
    std::copy(weights.begin(), weights.end(), fused.weight.begin());
    if (biases.empty()) return fused;
    fused.bias = Vector(std::array{biases.size()});
    std::copy(biases.begin(), biases.end(), fused.bias->begin());
    return fused;
}

// Reads such a matrix, and gives each linear layer its rows.
template <class Reader, std::size_t N>
void split_fused(Reader& reader, const std::string& name, const std::array<Linear*, N>& linears,
                 const std::array<std::size_t, N>& out, std::size_t in) {
    std::size_t first = 0;
    for (const std::size_t rows : out) first += rows;
    Linear all = empty_linear(linears[0]->bias.has_value());
    reader.linear(name, all, first, in);
    first = 0;
    for (std::size_t i = 0; i < N; first += out[i++]) {
        const std::size_t end = first + out[i];
        linears[i]->weight = xt::view(all.weight, xt::range(first, end), xt::all());
        if (all.bias) linears[i]->bias = xt::view(*all.bias, xt::range(first, end));
    }
}

// Reorders the last "rotated" rows of each head: row i becomes row source(i, rotated).
inline Linear reorder_last(const Linear& linear, std::size_t num_heads, std::size_t rotated,
                           std::size_t (*source)(std::size_t index, std::size_t head_dim)) {
    Linear result = linear;
    const std::size_t head_rows = linear.weight.shape(0) / num_heads;
    for (std::size_t h = 0; h < num_heads; ++h)
        for (std::size_t i = 0; i < rotated; ++i) {
            const std::size_t first = (h + 1) * head_rows - rotated;
            xt::view(result.weight, first + i, xt::all()) =
                xt::view(linear.weight, first + source(i, rotated), xt::all());
        }
    return result;
}

template <class AnyNorm, class Visitor>
requires std::same_as<std::remove_const_t<AnyNorm>, FinalNorm>
void visit_norm(AnyNorm& norm, const std::string& name, std::size_t size, Visitor& visit) {
    if (auto* rms_norm = std::get_if<RMSNorm>(&norm)) visit_norm(*rms_norm, name, size, visit);
    if (auto* layer_norm = std::get_if<LayerNorm>(&norm))
        visit_norm(*layer_norm, name, size, visit);
}

// Throws FileError if a mixture of experts has another number of them in the file: memory for
// them is allocated only after this.
template <class Tensors>
void check_experts(const PublishedConfig& config, Tensors& tensors, const TensorNames& names,
                   const PublishedLayerNames& layer_names) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (config.layers[n].is_moe)
            tensors.read(names.layer + std::to_string(n) + "." + layer_names.router + ".weight",
                         {config.experts.num_experts, config.hidden_size});
}

template <class AnyAttention, class Visitor>
void visit_pattern_attention(AnyAttention& attention, const PublishedConfig& config,
                             const std::string& layer, const PublishedLayerNames& names,
                             RopeLayout layout, Visitor& visit) {
    if (!names.qkv_proj.empty()) {
        auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
        const std::size_t C = config.hidden_size, D = config.head_dim;
        const std::size_t query_width = config.num_attention_heads * D;
        const std::size_t kv_width = config.num_key_value_heads * D;
        visit.fused(layer + names.qkv_proj, std::array{&q_proj, &k_proj, &v_proj},
                    std::array{query_width, kv_width, kv_width}, C);
        visit.linear(layer + names.o_proj, o_proj, C, query_width);
        return;
    }
    const bool has_rope = std::holds_alternative<RopeOfTable>(attention.position_encoding);
    visit_attention(attention.layer, config, layer, names,
                    has_rope ? layout : RopeLayout::split_half, visit);
    if (auto& sinks = attention.score_mod.sinks)
        visit.vector(layer + names.sinks, *sinks, config.num_attention_heads);
}

template <class AnyAttention, class Visitor>
requires std::same_as<std::remove_const_t<AnyAttention>, LatentAttention>
void visit_latent_attention(AnyAttention& attention, const PublishedConfig& config,
                            const std::string& layer, const PublishedLayerNames& names,
                            Visitor& visit) {
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = *config.latent;
    const std::size_t query_width = H * (Dn + Dr);
    if (auto* q_proj = std::get_if<Linear>(&attention.q_proj))
        visit.rotated_last(layer + names.q_proj, *q_proj, query_width, C, H, Dr);
    if (auto* low_rank = std::get_if<LowRankQueries>(&attention.q_proj)) {
        visit.linear(layer + names.q_a_proj, low_rank->q_a_proj, *q_lora_rank, C);
        visit.norm(layer + names.q_a_layernorm, low_rank->q_a_layernorm.weight, *q_lora_rank);
        visit.rotated_last(layer + names.q_b_proj, low_rank->q_b_proj, query_width,
                           *q_lora_rank, H, Dr);
    }
    visit.rotated_last(layer + names.kv_a_proj, attention.kv_a_proj_with_mqa, R + Dr, C, 1, Dr);
    visit.norm(layer + names.kv_a_layernorm, attention.kv_a_layernorm.weight, R);
    visit.latent_up(layer, names, attention.kv_b_proj, *config.latent);
    visit.linear(layer + names.o_proj, attention.o_proj, C, H * Dv);
}

template <class AnyMlp, class Visitor>
void visit_mlp_or_moe(AnyMlp& mlp_or_moe, const PublishedConfig& config,
                      const std::string& layer, const PublishedLayerNames& names,
                      Visitor& visit) {
    const std::size_t C = config.hidden_size, F = config.experts.moe_intermediate_size;
    const std::size_t width = config.intermediate_size;
    if (auto* plain = std::get_if<Mlp>(&mlp_or_moe)) {
        visit.linear(layer + names.mlp.up_proj, plain->up_proj, width, C);
        visit.linear(layer + names.mlp.down_proj, plain->down_proj, C, width);
        return;
    }
    if (auto* mlp = std::get_if<GatedMlp>(&mlp_or_moe)) {
        if (names.gate_up_proj.empty()) {
            visit_mlp(*mlp, layer, names.mlp, C, width, visit);
        } else {
            visit.fused(layer + names.gate_up_proj, std::array{&mlp->gate_proj, &mlp->up_proj},
                        std::array{width, width}, C);
            visit.linear(layer + names.mlp.down_proj, mlp->down_proj, C, width);
        }
        return;
    }
    auto& moe = std::get<MixtureOfExperts>(mlp_or_moe);
    visit.router(layer + names.router, moe.router, config.experts.num_experts, C);
    if (auto* sigmoid = std::get_if<SigmoidRouting>(&moe.routing))
        visit.vector(layer + names.correction_bias, sigmoid->e_score_correction_bias,
                     config.experts.num_experts);
    if (moe.shared)
        visit_mlp(*moe.shared, layer, names.shared_expert, C,
                  config.experts.n_shared_experts * F, visit);
    visit.experts(layer, names, moe.experts);
}

template <class AnyLayer, class Visitor>
requires std::same_as<std::remove_const_t<AnyLayer>, PublishedLayer>
void visit_layer(AnyLayer& any_layer, const PublishedConfig& config, const std::string& layer,
                 const PublishedLayerNames& names, RopeLayout layout, Visitor& visit) {
    const std::size_t C = config.hidden_size;
    std::visit(
        [&](auto& block) {
            const auto norm = [&](const std::string& name, auto& any_norm) {
                visit_norm(any_norm, layer + name, C, visit);
            };
            if constexpr (requires { block.norm; }) {
                norm(names.attention_norm, block.norm);
            } else {
                norm(names.attention_norm, block.attention_norm);
                norm(names.ffn_norm, block.ffn_norm);
            }
            if constexpr (requires { block.ffn_output_norm; }) {
                norm(names.attention_output_norm, block.attention_output_norm);
                norm(names.ffn_output_norm, block.ffn_output_norm);
            }
            if constexpr (requires { block.self_attn.kv_b_proj; })
                visit_latent_attention(block.self_attn, config, layer, names, visit);
            else
                visit_pattern_attention(block.self_attn, config, layer, names, layout, visit);
            visit_mlp_or_moe(block.mlp, config, layer, names, visit);
        },
        any_layer);
}

}  // namespace llm
