// Chapter 02, file 1 of 2: the linear layer.
#pragma once

#include <optional>
#include <string>

#include "common/numbers/random.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// y = x Wᵀ + b, PyTorch's nn.Linear. The weight is stored as (out, in): one row per output
// feature.
struct Linear {
    Matrix weight;               // (out, in)
    std::optional<Vector> bias;  // (out), or none

    // Throws ValueError if the last axis of the input is not "in".
    Matrix operator()(const Matrix& inputs) const;    // (N, in) -> (N, out)
    Tensor3 operator()(const Tensor3& inputs) const;  // (B, T, in) -> (B, T, out)
};

// PyTorch's default initialization: weight, then bias, uniform between -1/√in and 1/√in.
// Source: torch.nn.Linear.reset_parameters.
Linear make_linear(std::size_t in_features, std::size_t out_features, bool with_bias,
                   Generator& generator);

std::uint64_t num_parameters(const Linear& linear);

// PyTorch's printout: "Linear(in_features=128, out_features=32, bias=False)".
std::string describe(const Linear& linear);

}  // namespace llm
