// Chapter 18, file 7 of 7: MXFP4, the 4-bit floating-point format in which gpt-oss's experts
// are published.
#pragma once

#include <cstddef>

#include "common/tensors/tensor.hpp"

namespace llm {

// 32 weights share a scale, 2^(byte - 127). Each weight has 4 bits: a sign, two bits of
// exponent and one of mantissa, so it is one of 0, 0.5, 1, 1.5, 2, 3, 4, 6, or the negative of
// these. The first of two adjacent weights is in the lower half of a byte. Throws ValueError
// unless there are 16 bytes of blocks for each scale, and if a weight is not finite; a scale
// byte of 255 means NaN. Source: "OCP Microscaling Formats" (2023), sections 5.3 and 6.3;
// Hugging Face, integrations/mxfp4.py.
Vector dequantize_mxfp4(std::span<const std::byte> blocks,   // (16 N)
                        std::span<const std::byte> scales);  // (N) -> (32 N)

}  // namespace llm
