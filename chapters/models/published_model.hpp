// The model of chapter 09 with the layers of chapters 17 and 18: any published model of
// families/.
#pragma once

#include "chapters/18_experts/moe_decoder.hpp"
#include "chapters/models/family.hpp"

namespace llm {

// A layer: pre-norm, or Gemma's with four norms.
using GemmaBlock = SandwichBlockWith<MlpOrMoe, PatternAttention>;
struct PublishedLayer : std::variant<MoeBlock, GemmaBlock> {
    using variant::variant;
    using AttentionType = PatternAttention;

    const PatternAttention& self_attn() const;
    const MlpOrMoe& mlp() const;
    BlockOutput operator()(const Tensor3& hidden_states,  // (B, T, C)
                           const PatternAttentionInputs& inputs,
                           RollingCache* cache = nullptr) const;
};
inline RollingCache make_layer_cache(const PublishedLayer& layer) {
    return layer.self_attn().make_cache();
}

// Forward and backward pass, and the names of the parameters, so that these models can be
// trained as those of chapter 12.
using PublishedActivations = ActivationsOf<MoeBlock>;
PublishedActivations activations_of(const PublishedLayer&);
Tensor3 block_forward(const PublishedLayer& layer, const Tensor3& hidden_states,
                      const PatternAttentionInputs& inputs, PublishedActivations& saved,
                      Generator* dropout_generator = nullptr);
Tensor3 block_backward(const PublishedLayer& layer, const PatternAttentionInputs& inputs,
                       const PublishedActivations& saved, const Tensor3& output_gradient,
                       PublishedLayer& gradient);
void add_parameters(ParameterList& list, const std::string& name, PublishedLayer& layer);

using PublishedModel = DecoderModel<PublishedLayer, PublishedConfig>;
extern template struct DecoderModel<PublishedLayer, PublishedConfig>;

// One table for layers with full attention, and, if windows have a theta of their own, a second
// one. Throws ShapeError if P exceeds max_position_embeddings.
std::vector<RotaryTable> rotary_tables(const PublishedConfig& config,
                                       std::size_t num_positions);  // P

// A model with the structure that the configuration describes, whose tensors are still empty.
PublishedModel make_empty_model(const PublishedConfig& config);

// A decoder that was trained here as a Mixtral. Throws ShapeError unless every layer has a
// mixture of experts with SoftmaxRouting as Mixtral's, and no shared experts.
PublishedModel make_mixtral(const MoeDecoder& decoder);

}  // namespace llm
