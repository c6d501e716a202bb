// Where the tensors of a T5 stand in a file.
#pragma once

#include "chapters/models/encoders/t5.hpp"

namespace llm::models {

struct T5AttentionNames {
    std::string norm, q_proj, k_proj, v_proj, o_proj;
};
// The names of one stack, without ".weight"; those of layer n begin with `layer` and n.
struct T5StackNames {
    std::string layer;
    T5AttentionNames self, cross;
    std::string position_bias;  // of the first layer
    std::string ffn_norm;
    std::string plain_up_proj;  // without a gate
    MlpNames mlp;               // gated; down_proj of both
    std::string final_norm;
};
struct T5Names {
    std::string shared, lm_head;
    T5StackNames encoder, decoder;
};
const T5Names& t5_names();       // in safetensors
const T5Names& t5_gguf_names();  // of the architecture t5encoder: without a decoder

// Visit the tensors, which may be const, with chapter 09's members matrix, linear and norm.
template <class AnyAttention, class Visitor>
void visit_t5_attention(AnyAttention& attention, const Config& sizes, const std::string& layer,
                        const T5AttentionNames& names, Visitor& visit) {
    const std::size_t C = sizes.hidden_size, width = sizes.num_attention_heads * sizes.head_dim;
    auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
    visit.linear(layer + names.q_proj, q_proj, width, C);
    visit.linear(layer + names.k_proj, k_proj, width, C);
    visit.linear(layer + names.v_proj, v_proj, width, C);
    visit.linear(layer + names.o_proj, o_proj, C, width);
}

template <class AnyT5Mlp, class Visitor>
void visit_t5_mlp(AnyT5Mlp& mlp, const Config& sizes, const std::string& layer,
                  const T5StackNames& names, Visitor& visit) {
    const std::size_t C = sizes.hidden_size, F = sizes.intermediate_size;
    if (auto* gated = std::get_if<GatedMlp>(&mlp.mlp))
        return visit_mlp(*gated, layer, names.mlp, C, F, visit);
    auto& plain = std::get<Mlp>(mlp.mlp);
    visit.linear(layer + names.plain_up_proj, plain.up_proj, F, C);
    visit.linear(layer + names.mlp.down_proj, plain.down_proj, C, F);
}

template <class AnyBias, class AnyLayers, class AnyNorm, class Visitor>
void visit_t5_stack(AnyBias& bias, AnyLayers& layers, AnyNorm& final_norm,
                    const T5FamilyConfig& config, const T5StackNames& names, Visitor& visit) {
    const Config& sizes = config.sizes;
    const std::size_t C = sizes.hidden_size;
    visit.matrix(names.layer + "0." + names.position_bias, bias.weight,
                 config.relative_attention_num_buckets, sizes.num_attention_heads);
    for (std::size_t n = 0; n < layers.size(); ++n) {
        auto& block = layers[n];
        const std::string layer = names.layer + std::to_string(n) + ".";
        visit_norm(block.attention_norm, layer + names.self.norm, C, visit);
        visit_t5_attention(block.self_attn, sizes, layer, names.self, visit);
        if constexpr (requires { block.cross_attn; }) {
            visit_norm(block.cross_attention_norm, layer + names.cross.norm, C, visit);
            visit_t5_attention(block.cross_attn, sizes, layer, names.cross, visit);
        }
        visit_norm(block.ffn_norm, layer + names.ffn_norm, C, visit);
        visit_t5_mlp(block.mlp, sizes, layer, names, visit);
    }
    visit_norm(final_norm, names.final_norm, C, visit);
}

template <class AnyT5, class Visitor>
void visit_t5(AnyT5& model, const T5FamilyConfig& config, const T5Names& names,
              Visitor& visit) {
    const std::size_t V = config.sizes.vocab_size, C = config.sizes.hidden_size;
    visit.matrix(names.shared, model.shared, V, C);
    visit_t5_stack(model.encoder_bias, model.encoder_layers, model.encoder_norm, config,
                   names.encoder, visit);
    if (!config.has_decoder) return;
    visit_t5_stack(model.decoder_bias, model.decoder_layers, model.decoder_norm, config,
                   names.decoder, visit);
    if (model.lm_head) visit.matrix(names.lm_head, *model.lm_head, V, C);
}

}  // namespace llm::models
