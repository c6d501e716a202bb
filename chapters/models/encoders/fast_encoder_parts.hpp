// What is the same in a fast encoder that is made from a model and in one that is read from a
// file: all but the weight matrices.
#pragma once

#include "chapters/models/encoders/fast_encoder.hpp"

namespace llm::models {

inline NormOrIdentity copy_norm(const LayerNorm& norm) { return {norm}; }
inline NormOrIdentity copy_norm(const NormOrIdentity& norm) { return norm; }

template <class Block>
inline constexpr bool has_gate = std::same_as<decltype(Block::mlp), GatedMlp>;

// A layer without linear layers.
template <class Block>
FastEncoderLayer copy_all_but_linears(const Block& block) {
    FastEncoderLayer layer;
    layer.attention_norm = copy_norm(block.attention_norm);
    layer.ffn_norm = copy_norm(block.ffn_norm);
    layer.activation = block.mlp.activation;
    layer.has_gate = has_gate<Block>;
    layer.has_window = block.self_attn.has_window;
    return layer;
}

// An encoder without word embeddings and linear layers.
template <class Block>
FastEncoder copy_all_but_weights(const EncoderFamilyConfig& config,
                                 const Encoder<Block>& encoder) {
    const auto& [words, positions, token_types, norm] = encoder.embeddings;
    FastEncoder fast{
        config,
        std::same_as<Block, BertBlock> ? NormPlacement::post_norm : NormPlacement::pre_norm,
        {},
        positions,
        token_types,
        norm,
        {},
        encoder.final_norm};
    for (const Block& block : encoder.layers)
        fast.layers.push_back(copy_all_but_linears(block));
    return fast;
}

}  // namespace llm::models
