// Chapter 05, file 3 of 4: division by the root mean square, for QK norm here and RMSNorm in
// chapter 07.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// x / sqrt(mean(x²) + eps) along the last axis, without weights. Source: "Root Mean Square
// Layer Normalization" (Zhang and Sennrich, 2019).
Matrix rms_normalize(const Matrix& rows, Real eps);      // (N, D) -> (N, D)
Tensor4 rms_normalize(const Tensor4& states, Real eps);  // (B, H, T, D) -> (B, H, T, D)

}  // namespace llm
