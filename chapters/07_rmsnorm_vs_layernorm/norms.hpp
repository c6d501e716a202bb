// Chapter 07 — What keeps the numbers from growing?
#pragma once

#include "chapters/06_swiglu/mlp.hpp"
#include "common/tensors/half.hpp"

namespace llm {

// (x - mean(x)) / sqrt(var(x) + eps) along the last axis, without weights. The variance is the
// mean of squared distances from the mean, with 1/n. Source: "Layer Normalization" (Ba et al.,
// 2016).
Matrix layer_normalize(const Matrix& rows, Real eps);  // (N, C) -> (N, C)

// PyTorch's nn.LayerNorm: centre, divide by the standard deviation, stretch, shift. The calls
// throw ShapeError, with both shapes, unless weight and bias have C numbers.
struct LayerNorm {
    Vector weight;               // (C)
    std::optional<Vector> bias;  // (C), or none
    Real eps = Real(1e-5);

    Matrix operator()(const Matrix& rows) const;             // (N, C) -> (N, C)
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// Divide by the root mean square of chapter 05, stretch. The shift is optional, and no Llama or
// Qwen has one. Source: "Root Mean Square Layer Normalization" (Zhang and Sennrich, 2019).
struct RMSNorm {
    Vector weight;  // (C)
    Real eps = Real(1e-6);
    std::optional<Vector> bias = std::nullopt;  // (C), or none

    Matrix operator()(const Matrix& rows) const;             // (N, C) -> (N, C)
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// How both start: weights of one, shifts of zero.
LayerNorm make_layer_norm(std::size_t hidden_size, Real eps);
RMSNorm make_rms_norm(std::size_t hidden_size, Real eps);
std::size_t num_parameters(const LayerNorm& norm);
std::size_t num_parameters(const RMSNorm& norm);

// Gemma's checkpoints hold w and mean a weight of 1 + w. Source: Hugging Face,
// modeling_gemma.py.
RMSNorm gemma_norm(const Vector& stored, Real eps);  // (C)

// Partial RMSNorm: the first n·share numbers, rounded down, stand for all n. Throws ShapeError
// unless they are at least 1 and at most n. Source: Zhang and Sennrich (pRMSNorm).
Matrix partial_rms_normalize(const Matrix& rows, double share, Real eps);  // (N, C) -> (N, C)

// RMSNorm of 16-bit numbers. In 16 bits throughout: wrong for large and for many numbers. With
// 32 bits inside: right. Llama and Qwen cast back before they multiply with the weight, Gemma
// after it. Both throw ShapeError unless the weight has C numbers.
using HalfVector = xt::xtensor<Half, 1>;
using HalfMatrix = xt::xtensor<Half, 2>;
HalfMatrix to_half(const Matrix& rows);   // (N, C) -> (N, C), rounded
Matrix to_float(const HalfMatrix& rows);  // (N, C) -> (N, C), exact
enum class CastBack { before_weight, after_weight };
HalfMatrix rms_norm_in_half(const HalfMatrix& rows,        // (N, C)
                            const HalfVector& weight,      // (C)
                            Real eps);                     // -> (N, C)
HalfMatrix rms_norm_upcast(const HalfMatrix& rows,         // (N, C)
                           const HalfVector& weight,       // (C)
                           Real eps, CastBack cast_back);  // -> (N, C)

// The nearest bfloat16: a float without its last 16 bits. Ties go to the even neighbour;
// above 3.396e38 that is infinity.
float to_bfloat16(float number);

}  // namespace llm
