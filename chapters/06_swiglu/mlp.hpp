// Chapter 06 — What does the MLP compute for each token?
#pragma once

#include "chapters/02_projections/linear.hpp"
#include "chapters/06_swiglu/activations.hpp"

namespace llm {

// The MLP (feed-forward network) of the first transformer: up projection, activation, down
// projection. Source: Vaswani et al., 2017, section 3.3, with ReLU; GPT-2 with GELUTanh.
struct Mlp {
    Linear up_proj;    // (F, C)
    Linear down_proj;  // (C, F)
    Activation activation = ReLU;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// The gated MLP: down_proj(activation(gate_proj(x)) * up_proj(x)). The activation names the
// variant: Sigmoid GLU, ReLU ReGLU, GELU GeGLU, SiLU SwiGLU. A call throws ShapeError if gate
// and up differ. Source: "GLU Variants Improve Transformer" (Shazeer, 2020); Llama and Qwen use
// SwiGLU.
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
// The same function. Throws ShapeError unless gate and up have one shape and no bias.
FusedGatedMlp fuse(const GatedMlp& mlp);

// PyTorch's default initialization, in this order: up, down; and gate, down, up (w1, w2, w3 in
// Meta's code).
Mlp make_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
             const Activation& activation, Generator& generator);
GatedMlp make_gated_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
                        const Activation& activation, Generator& generator);

// The parameters in the matrices of the two, without biases. Each costs two FLOPs per token: a
// multiplication and an addition.
std::uint64_t mlp_parameters(std::size_t hidden_size, std::size_t intermediate_size);
std::uint64_t gated_mlp_parameters(std::size_t hidden_size, std::size_t intermediate_size);

// The next multiple; the size itself if it is one. Throws ShapeError if multiple_of is 0.
std::size_t round_up(std::size_t size, std::size_t multiple_of);

// F of the Llama models: two thirds of 4 C, so that three matrices have as many parameters as
// two of 4 C, times a multiplier, rounded up. Throws ShapeError if multiple_of is 0. Source:
// Meta's llama/model.py, FeedForward.
std::size_t llama_intermediate_size(std::size_t hidden_size, std::size_t multiple_of,
                                    double multiplier = 1);

}  // namespace llm
