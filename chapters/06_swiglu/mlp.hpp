// Chapter 06, file 1 of 2 — What does the MLP compute for each token?
#pragma once

#include "chapters/02_projections/linear.hpp"
#include "chapters/06_swiglu/activations.hpp"

namespace llm {

// The MLP (feed-forward network) of the original Transformer: up projection, activation, down
// projection. Source: Vaswani et al., 2017, section 3.3, with ReLU; GPT-2 with GELUTanh.
struct Mlp {
    Linear up_proj;    // (F, C)
    Linear down_proj;  // (C, F)
    Activation activation = ReLU;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// The gated MLP: down_proj(activation(gate_proj(x)) * up_proj(x)). The activation determines
// the variant: GLU (Sigmoid), ReGLU (ReLU), GeGLU (GELU) or SwiGLU (SiLU). A call throws
// ValueError if the outputs of gate_proj and up_proj cannot be broadcast together. Source: "GLU
// Variants Improve Transformer" (Shazeer, 2020); Llama and Qwen use SwiGLU.
struct GatedMlp {
    Linear gate_proj;  // (F, C), Meta's w1
    Linear up_proj;    // (F, C), Meta's w3
    Linear down_proj;  // (C, F), Meta's w2
    Activation activation = SiLU;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// Gate and up projection as one matrix, gate first. Source: Hugging Face, modeling_phi3.py.
struct FusedGatedMlp {
    Linear gate_up_proj;  // (2F, C)
    Linear down_proj;     // (C, F)
    Activation activation = SiLU;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};
// Concatenates the weights of gate_proj and up_proj; the result computes the same function.
// Throws ValueError unless both have the same shape and no bias.
FusedGatedMlp fuse(const GatedMlp& mlp);

// PyTorch's default initialization. The weights are initialized in the order up, down (Mlp) and
// gate, down, up (GatedMlp; w1, w2, w3 in Meta's code).
Mlp make_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
             const Activation& activation, Generator& generator);
GatedMlp make_gated_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
                        const Activation& activation, Generator& generator);

// The number of weights of Mlp and of GatedMlp, without biases. Each weight costs two FLOPs per
// token: a multiplication and an addition.
std::uint64_t mlp_parameters(std::uint64_t hidden_size, std::uint64_t intermediate_size);
std::uint64_t gated_mlp_parameters(std::uint64_t hidden_size, std::uint64_t intermediate_size);

// The smallest multiple of multiple_of that is at least size. Throws ValueError if multiple_of
// is 0.
std::size_t round_up(std::size_t size, std::size_t multiple_of);

// F of the Llama models: two thirds of 4 C, so that three matrices have as many parameters as
// two with F = 4 C, times a multiplier, rounded up to a multiple. Throws ValueError if
// multiple_of is 0. Source: Meta's llama/model.py, FeedForward.
std::size_t llama_intermediate_size(std::size_t hidden_size, std::size_t multiple_of,
                                    double multiplier = 1);

}  // namespace llm
