// Chapter 07, file 2 of 2: RMSNorm of float16 tensors.
#pragma once

#include "common/tensors/half.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

using HalfVector = xt::xtensor<Half, 1>;
using HalfMatrix = xt::xtensor<Half, 2>;
HalfMatrix to_half(const Matrix& rows);   // (N, C) -> (N, C), rounded
Matrix to_float(const HalfMatrix& rows);  // (N, C) -> (N, C), exact

// RMSNorm in float16 throughout, which overflows for large values and loses precision in long
// sums; and RMSNorm with an upcast to float32, which does not. Hugging Face's Llama and Qwen
// cast back to float16 before the multiplication by the weight, Gemma after it. Both functions
// throw ValueError unless the weight has C elements.
enum class CastBack { before_weight, after_weight };
HalfMatrix rms_norm_in_half(const HalfMatrix& rows,        // (N, C)
                            const HalfVector& weight,      // (C)
                            Real eps);                     // -> (N, C)
HalfMatrix rms_norm_upcast(const HalfMatrix& rows,         // (N, C)
                           const HalfVector& weight,       // (C)
                           Real eps, CastBack cast_back);  // -> (N, C)

}  // namespace llm
