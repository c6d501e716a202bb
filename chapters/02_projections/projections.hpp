// Chapter 02 — Where do queries, keys and values come from?
#pragma once

#include <optional>
#include <string>

#include "chapters/01_masking/masking.hpp"
#include "common/numbers/random.hpp"

namespace llm {

// y = x Wᵀ + b, PyTorch's nn.Linear. The weight is stored as (out, in): one row for each
// number that comes out.
struct Linear {
    Matrix weight;               // (out, in)
    std::optional<Vector> bias;  // (out), or none

    // Throws ShapeError if the last axis of the input is not "in".
    Matrix operator()(const Matrix& inputs) const;    // (N, in) -> (N, out)
    Tensor3 operator()(const Tensor3& inputs) const;  // (B, T, in) -> (B, T, out)
};

// PyTorch's default start: weight, then bias, uniform between -1/√in and 1/√in.
// Source: torch.nn.Linear.reset_parameters.
Linear make_linear(std::size_t in_features, std::size_t out_features, bool with_bias,
                   Generator& generator);

std::size_t num_parameters(const Linear& linear);

// PyTorch's printout: "Linear(in_features=128, out_features=32, bias=False)".
std::string describe(const Linear& linear);

// The four matrices of an attention layer.
struct Projections {
    Linear q_proj;  // (H*D, C): what each token asks for
    Linear k_proj;  // (Hkv*D, C): what each token can be found by
    Linear v_proj;  // (Hkv*D, C): what each token hands over when found
    Linear o_proj;  // (C, H*D): from all heads back to the hidden size
};

// Draws them in the order q, k, v, o.
Projections make_projections(const Config& config, Generator& generator);

}  // namespace llm
