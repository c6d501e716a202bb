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
//
// AnyLayer, AnyAttention and AnyMlp may be const.
template <class AnyAttention, class Visitor>
void visit_pattern_attention(AnyAttention& attention, const PublishedConfig& config,
                             const std::string& layer, const PublishedLayerNames& names,
                             RopeLayout layout, Visitor& visit) {
    const bool has_rope = std::holds_alternative<RopeOfTable>(attention.position_encoding);
    visit_attention(attention.layer, config, layer, names,
                    has_rope ? layout : RopeLayout::split_half, visit);
    if (auto& sinks = attention.score_mod.sinks)
        visit.vector(layer + names.sinks, *sinks, config.num_attention_heads);
}

template <class AnyMlp, class Visitor>
void visit_mlp_or_moe(AnyMlp& mlp_or_moe, const PublishedConfig& config,
                      const std::string& layer, const PublishedLayerNames& names,
                      Visitor& visit) {
    const std::size_t C = config.hidden_size, F = config.experts.moe_intermediate_size;
    if (auto* mlp = std::get_if<GatedMlp>(&mlp_or_moe)) {
        visit_mlp(*mlp, layer, names.mlp, C, config.intermediate_size, visit);
        return;
    }
    auto& moe = std::get<MixtureOfExperts>(mlp_or_moe);
    visit.router(layer + names.router, moe.router, config.experts.num_experts, C);
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
            visit.norm(layer + names.attention_norm, block.attention_norm.weight, C);
            visit_pattern_attention(block.self_attn, config, layer, names, layout, visit);
            visit.norm(layer + names.ffn_norm, block.ffn_norm.weight, C);
            if constexpr (requires { block.ffn_output_norm; }) {
                visit.norm(layer + names.attention_output_norm,
                           block.attention_output_norm.weight, C);
                visit.norm(layer + names.ffn_output_norm, block.ffn_output_norm.weight, C);
            }
            visit_mlp_or_moe(block.mlp, config, layer, names, visit);
        },
        any_layer);
}

}  // namespace llm
