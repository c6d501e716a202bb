// Chapter 06 — What does a token do with what it took?
#pragma once

#include "chapters/05_gqa/attention.hpp"

namespace llm {

// Activations: functions that bend each number for itself. Without one, two linear layers in a
// row would be one linear layer.
using Activation = Real (*)(Real);
Real sigmoid(Real x);  // 1 / (1 + e^-x), between 0 and 1
Real relu(Real x);     // x above 0, else 0
Real gelu(Real x);     // x Φ(x), Φ being the normal distribution (Hendrycks and Gimpel, 2016)
Real gelu_tanh(Real x);         // the approximation in the same paper; GPT-2 and Gemma use it
Real silu(Real x);              // x sigmoid(x)
Real swish(Real x, Real beta);  // x sigmoid(βx) (Ramachandran et al., 2017); silu has β = 1

// Their slopes, which training needs.
Real relu_derivative(Real x);  // 1 above 0, else 0 (also at 0, as in PyTorch)
Real gelu_derivative(Real x);
Real swish_derivative(Real x, Real beta);

// The same activation for every number of a tensor.
Tensor3 activate(Activation activation, const Tensor3& states);  // (B, T, F) -> (B, T, F)

// Widen, bend, narrow. Source: Vaswani et al., 2017, section 3.3, with relu; GPT-2 with
// gelu_tanh.
struct Mlp {
    Linear up_proj;    // (F, C)
    Linear down_proj;  // (C, F)
    Activation activation = relu;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// The bent half is a gate: it says how much of each number of the other half passes. The
// activation names the variant: sigmoid GLU, relu ReGLU, gelu GeGLU, silu SwiGLU. A call throws
// ShapeError if gate and up differ.
// Source: "GLU Variants Improve Transformer" (Shazeer, 2020); Llama and Qwen use SwiGLU.
struct GatedMlp {
    Linear gate_proj;  // (F, C), Meta's w1
    Linear up_proj;    // (F, C), Meta's w3
    Linear down_proj;  // (C, F), Meta's w2
    Activation activation = silu;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// Both projections up as one product, gate first. Source: Hugging Face, modeling_phi3.py.
struct FusedGatedMlp {
    Linear gate_up_proj;  // (2F, C)
    Linear down_proj;     // (C, F)
    Activation activation = silu;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};
// The same function. Throws ShapeError unless gate and up have one shape and no bias.
FusedGatedMlp fuse(const GatedMlp& mlp);

// PyTorch's default start. The matrices are drawn in this order: up, down; and gate, down, up
// (w1, w2, w3 in Meta's code).
Mlp make_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
             Activation activation, Generator& generator);
GatedMlp make_gated_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
                        Activation activation, Generator& generator);

// Numbers in the matrices of the two, without biases. A token costs two operations for each of
// them, a multiplication and an addition.
std::size_t mlp_parameters(std::size_t hidden_size, std::size_t intermediate_size);
std::size_t gated_mlp_parameters(std::size_t hidden_size, std::size_t intermediate_size);

// The next multiple; the size itself if it is one. Throws ShapeError if multiple_of is 0.
std::size_t round_up(std::size_t size, std::size_t multiple_of);

// F of the Llama models: two thirds of 4 C, so that three matrices hold as many numbers as two
// of 4 C would, times a multiplier, rounded up. Throws ShapeError if multiple_of is 0. Source:
// Meta's llama/model.py, FeedForward.
std::size_t llama_intermediate_size(std::size_t hidden_size, std::size_t multiple_of,
                                    double multiplier = 1);

// Training only, as in chapter 05: 0 with the given probability, the others divided by
// 1 - probability. Throws ShapeError unless 0 <= probability < 1.
Tensor3 dropout(const Tensor3& states, Real probability, Generator& generator);  // (B, T, C)

}  // namespace llm
