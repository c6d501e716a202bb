// Where the tensors of a published model stand in a file: chapter 09's visit_model for its
// layers.
#pragma once

#include "chapters/models/family_model.hpp"
#include "chapters/models/matrix_rows.hpp"
#include "chapters/models/value_heads.hpp"

namespace llm::models {

// Besides chapter 09's members, a visitor has these:
//
//     void router(...);  // as linear, of a mixture of experts
//     void vector(const std::string& name, Vector& values, std::size_t size);  // no suffix
//     void experts(const std::string& layer, const FamilyLayerNames& names,
//                  const MoeConfig& moe, std::vector<Expert>& experts);
//     // Rows of linear layers in one matrix, group by group: see fuse_groups. With one group,
//     // the layers are one below the other: Phi-3, GPT-2.
//     void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
//                  std::size_t in, std::size_t num_groups);
//     void convolution(const std::string& name, Matrix& weight, std::size_t channels,
//                      std::size_t kernel_size);
//     void a_log(const std::string& name, Vector& values, std::size_t size);  // GGUF: -e^A_log
//     // As linear; in the file, these rows of each head are interleaved pairs.
//     void rotated(const std::string& name, Linear& linear, std::size_t out, std::size_t in,
//                  const RotatedRows& rows);
//     // kv_b_proj, (H*(Dn + Dv), R); in GGUF files as two tensors.
//     void latent_up(const std::string& layer, const FamilyLayerNames& names,
//                    Linear& kv_b_proj, const LatentSizes& sizes);
//
// AnyLayer, AnyAttention and AnyMlp may be const.

// The settings of a layer, and of the model.
struct LayerOfModel {
    const FamilyConfig& model;
    const LayerConfig& layer;
};
inline LayerOfModel layer_config(const FamilyConfig& config, std::size_t layer) {
    return {config, config.layers[layer]};
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
        if (const MoeConfig* moe = moe_of(config.layers[n]))
            tensors.read(names.layer + std::to_string(n) + "." + layer_names.router + ".weight",
                         {moe->sizes.num_experts, config.hidden_size});
}

// The mixer of a layer: queries, keys and values in one matrix, or in three.
template <class AnyAttention, class Visitor>
void visit_mixer(AnyAttention& attention, const FamilyConfig& model,
                 const AttentionConfig& config, const std::string& layer,
                 const FamilyLayerNames& names, RopeLayout layout, Visitor& visit) {
    const std::size_t C = model.hidden_size, D = config.head_dim;
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
    const bool pairs = layout == RopeLayout::interleaved && config.rope;
    const auto projection = [&](const std::string& name, auto& linear, std::size_t num_heads) {
        if (pairs)
            visit.rotated(layer + name, linear, num_heads * D, C,
                          {num_heads, 0, config.rope->rotary_dim});
        else
            visit.linear(layer + name, linear, num_heads * D, C);
    };
    const bool gate_in_q_proj = attention.output_gate && names.output_gate.empty();
    if (!names.qkv_proj.empty()) {
        visit.grouped(layer + names.qkv_proj,
                      std::array{group_rows(q_proj, 0, H * D), group_rows(k_proj, 0, Hkv * D),
                                 group_rows(v_proj, 0, Hkv * D)},
                      C, 1);
    } else {
        if (gate_in_q_proj)
            visit.grouped(
                layer + names.q_proj,
                std::array{group_rows(q_proj, 0, D), group_rows(*attention.output_gate, 0, D)},
                C, H);
        else
            projection(names.q_proj, q_proj, H);
        projection(names.k_proj, k_proj, Hkv);
        visit.linear(layer + names.v_proj, v_proj, Hkv * D, C);
    }
    if (attention.output_gate && !gate_in_q_proj)
        visit.linear(layer + names.output_gate, *attention.output_gate, H * D, C);
    visit.linear(layer + names.o_proj, o_proj, C, H * D);
    visit_qk_norm(attention.layer, sizes_of(model, config), layer, names, visit);
    if (auto& sinks = attention.score_mod.sinks) visit.vector(layer + names.sinks, *sinks, H);
}

template <class AnyAttention, class Visitor>
void visit_mixer(AnyAttention& attention, const FamilyConfig&, const LatentConfig& config,
                 const std::string& layer, const FamilyLayerNames& names, RopeLayout,
                 Visitor& visit) {
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = config.sizes;
    const std::size_t query_width = H * (Dn + Dr);
    if (auto* q_proj = std::get_if<Linear>(&attention.q_proj))
        visit.rotated(layer + names.q_proj, *q_proj, query_width, C, {H, Dn, Dr});
    if (auto* low_rank = std::get_if<LowRankQueries>(&attention.q_proj)) {
        visit.linear(layer + names.q_a_proj, low_rank->q_a_proj, *q_lora_rank, C);
        visit.norm(layer + names.q_a_layernorm, low_rank->q_a_layernorm.weight, *q_lora_rank);
        visit.rotated(layer + names.q_b_proj, low_rank->q_b_proj, query_width, *q_lora_rank,
                      {H, Dn, Dr});
    }
    visit.rotated(layer + names.kv_a_proj, attention.kv_a_proj_with_mqa, R + Dr, C, {1, R, Dr});
    visit.norm(layer + names.kv_a_layernorm, attention.kv_a_layernorm.weight, R);
    visit.latent_up(layer, names, attention.kv_b_proj, config.sizes);
    visit.linear(layer + names.o_proj, attention.o_proj, C, H * Dv);
}

template <class AnyAttention, class Visitor>
void visit_linear_attention(AnyAttention& attention, const LinearSizes& sizes,
                            const std::string& layer, const FamilyLayerNames& names,
                            Visitor& visit) {
    const auto& [C, Hk, Hv, Dk, Dv, J] = sizes;
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
    if (names.in_proj_ba.empty()) {
        visit.linear(layer + names.in_proj_b, *attention.in_proj_b, Hv, C);
        visit.linear(layer + names.in_proj_a, attention.decay->in_proj_a, Hv, C);
    } else {
        visit.grouped(layer + names.in_proj_ba,
                      std::array{group_rows(*attention.in_proj_b, 0, ratio),
                                 group_rows(attention.decay->in_proj_a, 0, ratio)},
                      C, Hk);
    }
    visit.convolution(layer + names.conv1d, attention.conv1d, 2 * key_width + value_width, J);
    visit.a_log(layer + names.A_log, attention.decay->A_log, Hv);
    visit.vector(layer + names.dt_bias, attention.decay->dt_bias, Hv);
    visit.vector(layer + names.state_norm, attention.norm.weight, Dv);
    visit.linear(layer + names.out_proj, attention.out_proj, C, value_width);
}

template <class AnyAttention, class Visitor>
void visit_mixer(AnyAttention& convolution, const FamilyConfig&,
                 const GatedConvolutionSizes& sizes, const std::string& layer,
                 const FamilyLayerNames& names, RopeLayout, Visitor& visit) {
    const std::size_t C = sizes.hidden_size;
    visit.linear(layer + names.in_proj, convolution.in_proj, 3 * C, C);
    visit.convolution(layer + names.conv1d, convolution.conv1d, C, sizes.conv_kernel_dim);
    if (auto& bias = convolution.conv1d_bias)
        visit.vector(layer + names.conv1d + ".bias", *bias, C);
    visit.linear(layer + names.out_proj, convolution.out_proj, C, C);
}

// Tiled value heads are read in this order and then reordered; a writer, which must copy what
// it visits, gets a layer with this order.
template <class AnyAttention, class Visitor>
void visit_mixer(AnyAttention& attention, const FamilyConfig&, const LinearSizes& sizes,
                 const std::string& layer, const FamilyLayerNames& names, RopeLayout,
                 Visitor& visit) {
    if constexpr (std::is_const_v<AnyAttention>) {
        if (names.tiled_value_heads) {
            const LinearAttention tiled = reorder_value_heads(attention, ValueHeadOrder::tiled);
            return visit_linear_attention(tiled, sizes, layer, names, visit);
        }
    }
    visit_linear_attention(attention, sizes, layer, names, visit);
    if constexpr (!std::is_const_v<AnyAttention>)
        if (names.tiled_value_heads)
            attention = reorder_value_heads(attention, ValueHeadOrder::by_key_head);
}

// The MLP of a layer: without a gate, with one, or a mixture of experts.
template <class AnyMlp, class Visitor>
void visit_feed_forward(AnyMlp& mlp_or_moe, std::size_t C, const MlpConfig& config,
                        const std::string& layer, const FamilyLayerNames& names,
                        Visitor& visit) {
    const std::size_t width = config.intermediate_size;
    if (auto* plain = std::get_if<Mlp>(&mlp_or_moe)) {
        visit.linear(layer + names.mlp.up_proj, plain->up_proj, width, C);
        visit.linear(layer + names.mlp.down_proj, plain->down_proj, C, width);
        return;
    }
    auto& mlp = std::get<GatedMlp>(mlp_or_moe);
    if (names.gate_up_proj.empty()) {
        visit_mlp(mlp, layer, names.mlp, C, width, visit);
        return;
    }
    visit.grouped(
        layer + names.gate_up_proj,
        std::array{group_rows(mlp.gate_proj, 0, width), group_rows(mlp.up_proj, 0, width)}, C,
        1);
    visit.linear(layer + names.mlp.down_proj, mlp.down_proj, C, width);
}

template <class AnyMlp, class Visitor>
void visit_feed_forward(AnyMlp& mlp_or_moe, std::size_t C, const MoeConfig& config,
                        const std::string& layer, const FamilyLayerNames& names,
                        Visitor& visit) {
    auto& moe = std::get<MixtureOfExperts>(mlp_or_moe);
    const ExpertSizes& sizes = config.sizes;
    visit.router(layer + names.router, moe.router, sizes.num_experts, C);
    auto* sigmoid = std::get_if<SigmoidRouting>(&moe.routing);
    if (sigmoid && config.correction_bias)
        visit.vector(layer + names.correction_bias, sigmoid->e_score_correction_bias,
                     sizes.num_experts);
    if (moe.shared)
        visit_mlp(*moe.shared, layer, names.shared_expert, C, sizes.shared_width(), visit);
    if (moe.shared_gate) visit.router(layer + names.shared_gate, *moe.shared_gate, 1, C);
    visit.experts(layer, names, config, moe.experts);
}

template <class AnyLayer, class Visitor>
requires std::same_as<std::remove_const_t<AnyLayer>, FamilyLayer>
void visit_layer(AnyLayer& any_layer, const LayerOfModel& config, const std::string& layer,
                 const FamilyLayerNames& names, RopeLayout layout, Visitor& visit) {
    const std::size_t C = config.model.hidden_size;
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
            visit_mixer(block.self_attn, config.model,
                        mixer_config(block.self_attn, config.layer), layer, names, layout,
                        visit);
            std::visit(
                [&](const auto& mlp) {
                    visit_feed_forward(block.mlp, C, mlp, layer, names, visit);
                },
                config.layer.mlp);
        },
        any_layer);
}

}  // namespace llm::models
