// Chapter 20, file 6 of 8: forward and backward passes of the layer.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/20_linear_attention/linear_attention.hpp"

namespace llm {

// What the backward pass needs.
struct LinearActivations {
    Tensor3 input;            // (B, T, C)
    Tensor3 mixed;            // (B, T, Cc): of in_proj_qkv
    Tensor3 convolved;        // (B, T, Cc): before SiLU
    QueriesKeysValues heads;  // (B, Hk, T, Dk) twice, (B, Hv, T, Dv): after SiLU
    StateGates gates;         // (B, T, Hv)
    Tensor3 context;          // (B, T, Hv*Dv): what the heads read
    Tensor3 z;                // (B, T, Hv*Dv)
};

// The same output as layer(input, inputs), which has no dropout.
ForwardPass<LinearActivations> attention_forward(const LinearAttention& layer,
                                                 const Tensor3& input,  // (B, T, C)
                                                 const PatternAttentionInputs& inputs,
                                                 Generator* dropout_generator = nullptr);
// Returns the gradient with respect to the input, (B, T, C).
Tensor3 attention_backward(const LinearAttention& layer, const PatternAttentionInputs& inputs,
                           const LinearActivations& saved,
                           const Tensor3& output_gradient,  // (B, T, C)
                           LinearAttention& gradient);

// Append the parameters. (The files of Qwen3-Next fuse some of the projections: see
// chapters/models.)
void add_parameters(ParameterList& list, const std::string& name, LinearAttention& layer);

}  // namespace llm
