// FP8: floating-point numbers of one byte, in two formats. E4M3 has 4 bits of exponent and 3 of
// mantissa; its largest value is 448, and it has no infinities. E5M2 has a wider range and only
// 2 bits of mantissa. Source: OCP 8-bit Floating Point Specification (OFP8) 1.0.
#pragma once

#include <array>

namespace llm {

// The value of each byte.
using Float8Values = std::array<float, 256>;
const Float8Values& e4m3_values();
const Float8Values& e5m2_values();

}  // namespace llm
