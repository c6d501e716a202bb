// Chapter 17, file 5 of 8: forward and backward passes of PatternAttention, and a model made of
// it.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/17_long_context/pattern_attention.hpp"

namespace llm {

// The same output as attention(input, inputs). With a generator, dropout is applied to the
// attention weights, as in chapter 12.
ForwardPass<AttentionActivations> attention_forward(
    const PatternAttention& attention,
    const Tensor3& input,                  // (B, T, C)
    const PatternAttentionInputs& inputs,  // T positions
    Generator* dropout_generator = nullptr);
// Returns the gradient with respect to the input, (B, T, C); those of the weights, of the QK
// norm, of the sinks and of the output gate are accumulated.
Tensor3 attention_backward(const PatternAttention& attention,
                           const PatternAttentionInputs& inputs,
                           const AttentionActivations& saved,
                           const Tensor3& output_gradient,  // (B, T, C)
                           PatternAttention& gradient);

// Append the parameters; those of sinks are called NAME.sinks, as in gpt-oss.
void add_parameters(ParameterList& list, const std::string& name, PatternAttention& attention);

// The model of chapter 09 with this layer, for experiments.
using PatternDecoder = DecoderModel<PatternBlock>;

// The same weights with full attention. With learned sinks, each head has one of 0.
PatternDecoder make_pattern_decoder(const Model& model, bool learned_sinks);
// A copy in which every layer has this pattern.
PatternDecoder with_pattern(const PatternDecoder& decoder, const AttentionPattern& pattern);

}  // namespace llm
