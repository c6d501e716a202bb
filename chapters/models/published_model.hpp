// The model of chapter 09 with the layers of chapters 17 and 18: any published model of
// families/.
#pragma once

#include "chapters/18_experts/moe_decoder.hpp"
#include "chapters/models/block_variant.hpp"
#include "chapters/models/family.hpp"

namespace llm {

// A layer: pre-norm, Gemma's with four norms, or OLMo 2's with norms after the sublayers.
using GemmaBlock = SandwichBlockWith<MlpOrMoe, PatternAttention>;
using OlmoBlock = ResPostNormBlockWith<MlpOrMoe, PatternAttention>;
using PublishedLayer = BlockVariant<MoeBlock, GemmaBlock, OlmoBlock>;
const MlpOrMoe& mlp_of(const PublishedLayer& layer);

using PublishedModel = DecoderModel<PublishedLayer, PublishedConfig>;
extern template struct DecoderModel<PublishedLayer, PublishedConfig>;

// One table for layers with full attention, and, if windows have a theta of their own, a second
// one. Throws ValueError if P exceeds max_position_embeddings.
std::vector<RotaryTable> rotary_tables(const PublishedConfig& config,
                                       std::size_t num_positions);  // P

// A model with the structure that the configuration describes, whose tensors are still empty.
PublishedModel make_empty_model(const PublishedConfig& config);

// A decoder that was trained here as a Mixtral. Throws ValueError unless every layer has a
// mixture of experts with SoftmaxRouting as Mixtral's, and no shared experts.
PublishedModel make_mixtral(const MoeDecoder& decoder);

}  // namespace llm
