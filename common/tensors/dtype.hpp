// The data types in which weights are stored, and bfloat16.
#pragma once

#include <cstdint>
#include <string_view>

namespace llm {

// Data types of stored weights, with PyTorch's names.
enum class DType {
    float32,   // 4 bytes
    float16,   // 2 bytes: IEEE half precision
    bfloat16,  // 2 bytes: the upper half of a float32
    int8       // 1 byte, and one scale per group of weights (chapter 15)
};
std::string_view to_text(DType dtype);  // "float32"

// The upper 16 bits of a float32: the same range, with 8 instead of 24 significant bits.
struct Bfloat16 {
    std::uint16_t bits = 0;
};

// Rounds to the nearest bfloat16, ties to even. Values above 3.396e38 become infinity; NaN
// stays NaN.
Bfloat16 to_bfloat16(float value);
float to_float(Bfloat16 value);

}  // namespace llm
