// Chapter 07, file 1 of 2 — What keeps the inputs of every layer at one scale?
#pragma once

#include <cstdint>
#include <optional>

#include "common/tensors/tensor.hpp"

namespace llm {

// (x - mean(x)) / sqrt(var(x) + eps) along the last axis, without weights. The variance is
// biased (1/n), as in PyTorch. Source: "Layer Normalization" (Ba et al.,
// 2016).
Matrix layer_normalize(const Matrix& rows, Real eps);  // (N, C) -> (N, C)

// PyTorch's nn.LayerNorm: layer_normalize, then weight and bias. The calls throw ValueError,
// with both shapes, unless weight and bias have C elements.
struct LayerNorm {
    Vector weight;               // (C)
    std::optional<Vector> bias;  // (C), or none
    Real eps = Real(1e-5);

    Matrix operator()(const Matrix& rows) const;             // (N, C) -> (N, C)
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// Divides by the root mean square and multiplies by the weight. The bias is optional; Llama and
// Qwen models have none.
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

// Partial RMSNorm (pRMSNorm): divides all C features by the RMS of the first fraction·C of
// them, rounded down. Throws ValueError unless these are at least 1 and at most C. Source:
// Zhang and Sennrich.
Matrix partial_rms_normalize(const Matrix& rows, double fraction, Real eps);  // (N, C)

}  // namespace llm
