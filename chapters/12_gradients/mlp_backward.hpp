// Chapter 12, file 4 of 8: forward and backward passes of the MLPs of chapter 06.
#pragma once

#include "chapters/06_swiglu/mlp.hpp"
#include "chapters/12_gradients/linear_backward.hpp"

namespace llm {

// What the backward pass of an MLP needs from its forward pass.
struct MlpActivations {
    Tensor3 input;   // (B, T, C)
    Tensor3 gate;    // (B, T, F): gate_proj(input), before the activation; empty for Mlp
    Tensor3 up;      // (B, T, F): up_proj(input)
    Tensor3 hidden;  // (B, T, F): the input of down_proj
};

// The same output as mlp(input).
ForwardPass<MlpActivations> mlp_forward(const Mlp& mlp, const Tensor3& input);  // (B, T, C)
ForwardPass<MlpActivations> mlp_forward(const GatedMlp& mlp, const Tensor3& input);

// Return the gradient with respect to the input, (B, T, C).
Tensor3 mlp_backward(const Mlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient,  // (B, T, C)
                     Mlp& gradient);
Tensor3 mlp_backward(const GatedMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient,  // (B, T, C)
                     GatedMlp& gradient);

}  // namespace llm
