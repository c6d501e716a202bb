// Where the tensors of a model stand in a file: one function that visits them all, for reading,
// writing and exporting.
#pragma once

#include "chapters/models/published_model.hpp"

namespace llm {

// A visitor has these members; names are complete but for ".weight" and ".bias". A linear layer
// has a bias if its optional bias is there. num_heads: the rows of this projection are those of
// so many heads, in interleaved pairs, in the file; 0: as they are.
//
//     void matrix(const std::string& name, Matrix& weight, std::size_t out, std::size_t in);
//     void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in,
//                 std::size_t num_heads = 0);
//     void router(...);  // as linear, of a mixture of experts
//     void norm(const std::string& name, Vector& weight, std::size_t size);
//     void vector(const std::string& name, Vector& values, std::size_t size);  // no suffix
//     void experts(const std::string& layer, const LayerNames& names,
//                  std::vector<Expert>& experts);
//
// All tensors may be const.
template <class AnyMlp, class Visitor>
void visit_mlp(AnyMlp& mlp, const std::string& layer, const MlpNames& names,
               std::size_t hidden_size, std::size_t intermediate_size, Visitor& visit) {
    visit.linear(layer + names.gate_proj, mlp.gate_proj, intermediate_size, hidden_size);
    visit.linear(layer + names.up_proj, mlp.up_proj, intermediate_size, hidden_size);
    visit.linear(layer + names.down_proj, mlp.down_proj, hidden_size, intermediate_size);
}

template <class AnyAttention, class Visitor>
void visit_attention(AnyAttention& attention, const PublishedConfig& config,
                     const std::string& layer, const LayerNames& names, RopeLayout layout,
                     Visitor& visit) {
    const std::size_t C = config.hidden_size, D = config.head_dim;
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    const bool interleaved = layout == RopeLayout::interleaved &&
                             std::holds_alternative<RopeOfTable>(attention.position_encoding);
    auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
    visit.linear(layer + names.q_proj, q_proj, H * D, C, interleaved ? H : 0);
    visit.linear(layer + names.k_proj, k_proj, Hkv * D, C, interleaved ? Hkv : 0);
    visit.linear(layer + names.v_proj, v_proj, Hkv * D, C);
    visit.linear(layer + names.o_proj, o_proj, C, H * D);
    if (auto* norm = std::get_if<QKNormWithWeights>(&attention.layer.qk_norm)) {
        visit.norm(layer + names.q_norm, norm->q_weight, D);
        visit.norm(layer + names.k_norm, norm->k_weight, D);
    }
    if (auto& sinks = attention.score_mod.sinks) visit.vector(layer + names.sinks, *sinks, H);
}

template <class AnyLayer, class Visitor>
void visit_layer(AnyLayer& any_layer, const PublishedConfig& config, const std::string& layer,
                 const LayerNames& names, RopeLayout layout, Visitor& visit) {
    const std::size_t C = config.hidden_size;
    std::visit(
        [&](auto& block) {
            visit.norm(layer + names.attention_norm, block.attention_norm.weight, C);
            visit_attention(block.self_attn, config, layer, names, layout, visit);
            visit.norm(layer + names.ffn_norm, block.ffn_norm.weight, C);
            if constexpr (requires { block.ffn_output_norm; }) {
                visit.norm(layer + names.attention_output_norm,
                           block.attention_output_norm.weight, C);
                visit.norm(layer + names.ffn_output_norm, block.ffn_output_norm.weight, C);
            }
            auto* moe = std::get_if<MixtureOfExperts>(&block.mlp);
            if (!moe) {
                visit_mlp(std::get<GatedMlp>(block.mlp), layer, names.mlp, C,
                          config.intermediate_size, visit);
                return;
            }
            const std::size_t F = config.experts.moe_intermediate_size;
            visit.router(layer + names.router, moe->router, config.experts.num_experts, C);
            if (moe->shared)
                visit_mlp(*moe->shared, layer, names.shared_expert, C,
                          config.experts.n_shared_experts * F, visit);
            visit.experts(layer, names, moe->experts);
        },
        any_layer);
}

// The names of the file are those of a format: Hugging Face's or GGUF's.
template <class AnyModel, class Visitor>
void visit_model(AnyModel& model, const TensorNames& names, const LayerNames& layer_names,
                 RopeLayout layout, Visitor& visit) {
    const std::size_t V = model.config.vocab_size, C = model.config.hidden_size;
    visit.matrix(names.embed_tokens, model.embed_tokens, V, C);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        visit_layer(model.layers[n], model.config, names.layer + std::to_string(n) + ".",
                    layer_names, layout, visit);
    visit.norm(names.norm, model.norm.weight, C);
    if (model.lm_head) visit.matrix(names.lm_head, *model.lm_head, V, C);
}

}  // namespace llm
