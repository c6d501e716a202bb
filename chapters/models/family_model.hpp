// The model of chapter 09 with the layers of chapters 17 to 20: any published model of
// families/.
#pragma once

#include "chapters/18_experts/moe_decoder.hpp"
#include "chapters/19_latent_attention/latent_attention_backward.hpp"
#include "chapters/20_linear_attention/linear_attention_backward.hpp"
#include "chapters/models/block_variant.hpp"
#include "chapters/models/family.hpp"
#include "chapters/models/final_norm.hpp"

namespace llm::models {

// A layer: pre-norm, with RMSNorm or (GPT-2) LayerNorm, Gemma's with four norms, OLMo 2's with
// norms after the sublayers, Cohere's, whose sublayers are parallel, DeepSeek's, with latent
// attention, Qwen3-Next's, with linear attention, or LFM2's, with a gated convolution.
using Gpt2Block = PreNormBlockWith<LayerNorm, MlpOrMoe, PatternAttention>;
using GemmaBlock = SandwichBlockWith<MlpOrMoe, PatternAttention>;
using OlmoBlock = ResPostNormBlockWith<MlpOrMoe, PatternAttention>;
using CohereBlock = ParallelBlockWith<LayerNorm, MlpOrMoe, PatternAttention>;
using DeepseekBlock = PreNormBlockWith<RMSNorm, MlpOrMoe, LatentAttention>;
using QwenNextBlock = PreNormBlockWith<RMSNorm, MlpOrMoe, LinearAttention>;
using ConvolutionBlock = PreNormBlockWith<RMSNorm, MlpOrMoe, GatedConvolution>;
using FamilyLayer = BlockVariant<MoeBlock, GemmaBlock, OlmoBlock, Gpt2Block, CohereBlock,
                                 DeepseekBlock, QwenNextBlock, ConvolutionBlock>;
const MlpOrMoe& mlp_of(const FamilyLayer& layer);

using FamilyModel = DecoderModel<FamilyLayer, FamilyConfig, FinalNorm>;

// One table for each distinct RoPE of the layers, in the order of the first layers that have
// it; of a model without RoPE, none. Throws ValueError if P exceeds max_position_embeddings.
std::vector<RotaryTable> rotary_tables(const FamilyConfig& config,
                                       std::size_t num_positions);  // P

// The sizes of attention of one layer, as chapter 09's functions take them.
Config sizes_of(const FamilyConfig& config, const AttentionConfig& attention);

// The settings of which these mixers are built.
inline const AttentionConfig& mixer_config(const PatternAttention&, const LayerConfig& layer) {
    return std::get<AttentionConfig>(layer.mixer);
}
inline const LatentConfig& mixer_config(const LatentAttention&, const LayerConfig& layer) {
    return std::get<LatentConfig>(layer.mixer);
}
inline const LinearSizes& mixer_config(const LinearAttention&, const LayerConfig& layer) {
    return std::get<LinearSizes>(layer.mixer);
}
inline const GatedConvolutionSizes& mixer_config(const GatedConvolution&,
                                                 const LayerConfig& layer) {
    return std::get<GatedConvolutionSizes>(layer.mixer);
}

// A model with the structure that the configuration describes, whose tensors are still empty.
FamilyModel make_empty_model(const FamilyConfig& config);

// The same model as chapter 09's, if all layers are Llama's: pre-norm with RMSNorm, SwiGLU,
// RoPE of one table, and no windows, experts, scales or caps. Its tensors are moved.
std::optional<Model> as_llama_model(FamilyModel model);

// A decoder that was trained here as a Mixtral. Throws ValueError unless every layer has a
// mixture of experts with SoftmaxRouting as Mixtral's, and no shared experts.
FamilyModel make_mixtral(const MoeDecoder& decoder);

}  // namespace llm::models

extern template struct llm::DecoderModel<llm::models::FamilyLayer, llm::models::FamilyConfig,
                                         llm::models::FinalNorm>;
extern template std::vector<llm::RoutedTokens> llm::routed_tokens(
    const llm::models::FamilyModel&, const llm::IdMatrix&);
