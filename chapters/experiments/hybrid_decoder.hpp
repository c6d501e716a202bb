// A model whose layers have softmax attention or linear attention, in any order.
#pragma once

#include "chapters/17_long_context/pattern_attention_backward.hpp"
#include "chapters/20_linear_attention/linear_attention_backward.hpp"
#include "chapters/models/block_variant.hpp"

namespace llm {

using HybridBlock = models::BlockVariant<PatternBlock, LinearBlock>;
using HybridDecoder = DecoderModel<HybridBlock>;

// What the attention of a layer is; none: softmax attention with RoPE.
using HybridLayer = std::optional<LinearVariant>;

// One layer for each element, initialized with PyTorch's defaults. Linear attention has as many
// value heads, of head_dim features, as softmax attention has query heads, and key heads as
// well. The head is tied. Throws ValueError if the configuration has another number of layers.
HybridDecoder make_hybrid_decoder(const Config& config, const std::vector<HybridLayer>& layers,
                                  Generator& generator);

}  // namespace llm
