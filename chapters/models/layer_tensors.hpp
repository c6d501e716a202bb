// Where the tensors of a published model stand in a file: chapter 09's visit_model for its
// layers.
#pragma once

#include "chapters/models/family_model.hpp"

namespace llm::models {

// Besides chapter 09's members, a visitor has these:
//
//     void router(...);  // as linear, of a mixture of experts
//     void vector(const std::string& name, Vector& values, std::size_t size);  // no suffix
//     void experts(const std::string& layer, const FamilyLayerNames& names,
//                  std::vector<Expert>& experts);
//     // Rows of linear layers in one matrix, group by group: see fuse_groups. With one group,
//     // the layers are one below the other: Phi-3, GPT-2.
//     void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
//                  std::size_t in, std::size_t num_groups);
//     void convolution(const std::string& name, Matrix& weight, std::size_t channels,
//                      std::size_t kernel_size);
//     void a_log(const std::string& name, Vector& values, std::size_t size);  // GGUF: -e^A_log
//     // As linear; in the file, the last "rotated" rows of each head are interleaved pairs.
//     void rotated_last(const std::string& name, Linear& linear, std::size_t out,
//                       std::size_t in, std::size_t num_heads, std::size_t rotated);
//     // kv_b_proj, (H*(Dn + Dv), R); in GGUF files as two tensors.
//     void latent_up(const std::string& layer, const FamilyLayerNames& names,
//                    Linear& kv_b_proj, const LatentSizes& sizes);
//
// AnyLayer, AnyAttention and AnyMlp may be const.

// Some rows of a linear layer for each of several groups: group g has those from
// first + g · rows on.
template <class AnyLinear>
struct GroupRows {
    AnyLinear* linear;
    std::size_t first, rows;
};

// One linear layer with the rows of the first group, part by part, then those of the second,
// and so on; likewise the biases, if there are any.
template <std::size_t N>
Linear fuse_groups(const std::array<GroupRows<const Linear>, N>& parts,
                   std::size_t num_groups) {
    std::vector<Real> weights, biases;
    const std::size_t in = parts.front().linear->weight.shape(1);
    for (std::size_t g = 0; g < num_groups; ++g)
        for (const auto& [linear, first, rows] : parts) {
            const auto begin = std::ptrdiff_t(first + g * rows),
                       end = begin + std::ptrdiff_t(rows);
            const auto width = std::ptrdiff_t(in);
            weights.insert(weights.end(), linear->weight.begin() + begin * width,
                           linear->weight.begin() + end * width);
            if (linear->bias)
                biases.insert(biases.end(), linear->bias->begin() + begin,
                              linear->bias->begin() + end);
        }
    Linear fused{Matrix(std::array{weights.size() / in, in}), std::nullopt};
    std::copy(weights.begin(), weights.end(), fused.weight.begin());
    if (biases.empty()) return fused;
    fused.bias = Vector(std::array{biases.size()});
    std::copy(biases.begin(), biases.end(), fused.bias->begin());
    return fused;
}

// Reads such a matrix, and gives each linear layer its rows.
template <class Reader, std::size_t N>
void split_groups(Reader& reader, const std::string& name,
                  const std::array<GroupRows<Linear>, N>& parts, std::size_t in,
                  std::size_t num_groups) {
    std::size_t group_rows = 0;
    for (const auto& part : parts) group_rows += part.rows;
    Linear all = empty_linear(parts.front().linear->bias.has_value());
    reader.linear(name, all, num_groups * group_rows, in);
    for (const auto& [linear, first, rows] : parts) {
        std::size_t out = 0;  // of this linear layer, which may have several parts
        for (const auto& other : parts)
            if (other.linear == linear) out += num_groups * other.rows;
        linear->weight.resize({out, in});
        if (linear->bias) linear->bias->resize({out});
    }
    for (std::size_t g = 0, row = 0; g < num_groups; ++g)
        for (const auto& [linear, first, rows] : parts)
            for (std::size_t r = 0; r < rows; ++r, ++row) {
                const std::size_t target = first + g * rows + r;
                xt::view(linear->weight, target, xt::all()) =
                    xt::view(all.weight, row, xt::all());
                if (all.bias) (*linear->bias)(target) = (*all.bias)(row);
            }
}

template <class AnyLinear>
GroupRows<AnyLinear> group_rows(AnyLinear& linear, std::size_t first, std::size_t count) {
    return {&linear, first, count};
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
void check_experts(const FamilyConfig& config, Tensors& tensors, const TensorNames& names,
                   const FamilyLayerNames& layer_names) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (config.layers[n].is_moe)
            tensors.read(names.layer + std::to_string(n) + "." + layer_names.router + ".weight",
                         {config.experts.num_experts, config.hidden_size});
}

template <class AnyAttention, class Visitor>
void visit_pattern_attention(AnyAttention& attention, const FamilyConfig& config,
                             const std::string& layer, const FamilyLayerNames& names,
                             RopeLayout layout, Visitor& visit) {
    if (!names.qkv_proj.empty()) {
        auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
        const std::size_t C = config.hidden_size, D = config.head_dim;
        const std::size_t query_width = config.num_attention_heads * D;
        const std::size_t kv_width = config.num_key_value_heads * D;
        visit.grouped(
            layer + names.qkv_proj,
            std::array{group_rows(q_proj, 0, query_width), group_rows(k_proj, 0, kv_width),
                       group_rows(v_proj, 0, kv_width)},
            C, 1);
        visit.linear(layer + names.o_proj, o_proj, C, query_width);
        return;
    }
    if (attention.output_gate) {
        auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
        const std::size_t C = config.hidden_size, D = config.head_dim;
        const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
        visit.grouped(
            layer + names.q_proj,
            std::array{group_rows(q_proj, 0, D), group_rows(*attention.output_gate, 0, D)}, C,
            H);
        visit.linear(layer + names.k_proj, k_proj, Hkv * D, C);
        visit.linear(layer + names.v_proj, v_proj, Hkv * D, C);
        visit.linear(layer + names.o_proj, o_proj, C, H * D);
        visit_qk_norm(attention.layer, config, layer, names, visit);
        return;
    }
    const bool has_rope = std::holds_alternative<RoPE>(attention.position_encoding);
    visit_attention(attention.layer, config, layer, names,
                    has_rope ? layout : RopeLayout::split_half, visit);
    if (auto& sinks = attention.score_mod.sinks)
        visit.vector(layer + names.sinks, *sinks, config.num_attention_heads);
}

template <class AnyAttention, class Visitor>
requires std::same_as<std::remove_const_t<AnyAttention>, LatentAttention>
void visit_latent_attention(AnyAttention& attention, const FamilyConfig& config,
                            const std::string& layer, const FamilyLayerNames& names,
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

template <class AnyAttention, class Visitor>
requires std::same_as<std::remove_const_t<AnyAttention>, LinearAttention>
void visit_linear_attention(AnyAttention& attention, const FamilyConfig& config,
                            const std::string& layer, const FamilyLayerNames& names,
                            Visitor& visit) {
    const auto& [C, Hk, Hv, Dk, Dv, K] = *config.linear;
    const std::size_t ratio = Hv / Hk, key_width = Hk * Dk, value_width = Hv * Dv;
    auto& qkv = attention.in_proj_qkv;
    auto& z = attention.in_proj_z;
    if (names.in_proj_qkvz.empty()) {
        visit.linear(layer + names.in_proj_qkv, qkv, 2 * key_width + value_width, C);
        visit.linear(layer + names.in_proj_z, z, value_width, C);
    } else {
        visit.grouped(layer + names.in_proj_qkvz,
                      std::array{group_rows(qkv, 0, Dk), group_rows(qkv, key_width, Dk),
                                 group_rows(qkv, 2 * key_width, ratio * Dv),
                                 group_rows(z, 0, ratio * Dv)},
                      C, Hk);
    }
    visit.grouped(layer + names.in_proj_ba,
                  std::array{group_rows(*attention.in_proj_b, 0, ratio),
                             group_rows(attention.decay->in_proj_a, 0, ratio)},
                  C, Hk);
    visit.convolution(layer + names.conv1d, attention.conv1d, 2 * key_width + value_width, K);
    visit.a_log(layer + names.A_log, attention.decay->A_log, Hv);
    visit.vector(layer + names.dt_bias, attention.decay->dt_bias, Hv);
    visit.vector(layer + names.state_norm, attention.norm.weight, Dv);
    visit.linear(layer + names.out_proj, attention.out_proj, C, value_width);
}

template <class AnyMlp, class Visitor>
void visit_mlp_or_moe(AnyMlp& mlp_or_moe, const FamilyConfig& config, const std::string& layer,
                      const FamilyLayerNames& names, Visitor& visit) {
    const std::size_t C = config.hidden_size;
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
            visit.grouped(layer + names.gate_up_proj,
                          std::array{group_rows(mlp->gate_proj, 0, width),
                                     group_rows(mlp->up_proj, 0, width)},
                          C, 1);
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
        visit_mlp(*moe.shared, layer, names.shared_expert, C, config.experts.shared_width(),
                  visit);
    if (moe.shared_gate) visit.router(layer + names.shared_gate, *moe.shared_gate, 1, C);
    visit.experts(layer, names, moe.experts);
}

template <class AnyLayer, class Visitor>
requires std::same_as<std::remove_const_t<AnyLayer>, FamilyLayer>
void visit_layer(AnyLayer& any_layer, const FamilyConfig& config, const std::string& layer,
                 const FamilyLayerNames& names, RopeLayout layout, Visitor& visit) {
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
            else if constexpr (requires { block.self_attn.conv1d; })
                visit_linear_attention(block.self_attn, config, layer, names, visit);
            else
                visit_pattern_attention(block.self_attn, config, layer, names, layout, visit);
            visit_mlp_or_moe(block.mlp, config, layer, names, visit);
        },
        any_layer);
}

}  // namespace llm::models
