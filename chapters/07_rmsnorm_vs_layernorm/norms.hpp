// Chapter 07 — What keeps activations from growing?
#pragma once

#include <cstdint>
#include <optional>

#include "common/tensors/tensor.hpp"

namespace llm {

// (x - mean(x)) / sqrt(var(x) + eps) along the last axis, without weights. The variance is the
// mean squared distance from the mean, with 1/n. Source: "Layer Normalization" (Ba et al.,
// 2016).
Matrix layer_normalize(const Matrix& rows, Real eps);  // (N, C) -> (N, C)

// PyTorch's nn.LayerNorm: center, divide by the standard deviation, scale, shift. The calls
// throw ShapeError, with both shapes, unless weight and bias have C elements.
struct LayerNorm {
    Vector weight;               // (C)
    std::optional<Vector> bias;  // (C), or none
    Real eps = Real(1e-5);

    Matrix operator()(const Matrix& rows) const;             // (N, C) -> (N, C)
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// Divide by the root mean square, scale. The bias is optional; no Llama or Qwen has one.
// Source: "Root Mean Square Layer Normalization" (Zhang and Sennrich, 2019).
struct RMSNorm {
    Vector weight;  // (C)
    Real eps = Real(1e-6);
    std::optional<Vector> bias = std::nullopt;  // (C), or none

    Matrix operator()(const Matrix& rows) const;             // (N, C) -> (N, C)
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// PyTorch's initialization of both: weights of one, biases of zero.
LayerNorm make_layer_norm(std::size_t hidden_size, Real eps);
RMSNorm make_rms_norm(std::size_t hidden_size, Real eps);
std::uint64_t num_parameters(const LayerNorm& norm);
std::uint64_t num_parameters(const RMSNorm& norm);

// Gemma's checkpoints store w and multiply by 1 + w. Source: Hugging Face, modeling_gemma.py.
RMSNorm gemma_norm(const Vector& stored, Real eps);  // (C)

// Partial RMSNorm: the RMS of the first fraction·n features, rounded down, divides all n.
// Throws ShapeError unless they are at least 1 and at most n. Source: Zhang and Sennrich
// (pRMSNorm).
Matrix partial_rms_normalize(const Matrix& rows, double fraction, Real eps);  // (N, C)

}  // namespace llm
