// Chapter 12, file 3 of 8: the backward passes of the norms of chapters 05 and 07.
#pragma once

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

namespace llm {

// x / rms(x), without weights, of chapter 05.
Matrix rms_normalize_backward(const Matrix& input,            // (N, C)
                              const Matrix& output_gradient,  // (N, C)
                              Real eps);                      // -> (N, C)
// (x - mean(x)) / std(x), without weights, of chapter 07.
Matrix layer_normalize_backward(const Matrix& input,            // (N, C)
                                const Matrix& output_gradient,  // (N, C)
                                Real eps);                      // -> (N, C)

// RMSNorm and LayerNorm of chapter 07, with weight and bias, whose gradients are accumulated.
Matrix norm_backward(const RMSNorm& norm, const Matrix& input,               // (N, C)
                     const Matrix& output_gradient, RMSNorm& gradient);      // -> (N, C)
Matrix norm_backward(const LayerNorm& norm, const Matrix& input,             // (N, C)
                     const Matrix& output_gradient, LayerNorm& gradient);    // -> (N, C)
Tensor3 norm_backward(const RMSNorm& norm, const Tensor3& input,             // (B, T, C)
                      const Tensor3& output_gradient, RMSNorm& gradient);    // -> (B, T, C)
Tensor3 norm_backward(const LayerNorm& norm, const Tensor3& input,           // (B, T, C)
                      const Tensor3& output_gradient, LayerNorm& gradient);  // -> (B, T, C)

}  // namespace llm
