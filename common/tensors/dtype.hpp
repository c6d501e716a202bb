// The data types in which weights are stored, their sizes, and bfloat16.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensors/real.hpp"

namespace llm {

// Data types of stored weights: PyTorch's names, then llama.cpp's for blocks of weights that
// share a scale (16_quantization/block_types.hpp).
enum class DType {
    float32,   // 4 bytes
    float16,   // 2 bytes: IEEE half precision
    bfloat16,  // 2 bytes: the upper half of a float32
    q8_0,      // 34 bytes for 32 weights
    q4_0,      // 18 bytes for 32 weights
    q5_0,      // 22 bytes for 32 weights
    q4_k,      // 144 bytes for 256 weights
    q6_k,      // 210 bytes for 256 weights
    mxfp4      // 17 bytes for 32 weights; only read
};
std::string_view to_text(DType dtype);  // "float32"
// Those that can be written, from the least to the most bits per weight, and their names.
inline constexpr std::array all_dtypes = {DType::q4_0,    DType::q4_k,   DType::q5_0,
                                          DType::q6_k,    DType::q8_0,   DType::bfloat16,
                                          DType::float16, DType::float32};
std::vector<std::string> dtype_names();
DType dtype_named(std::string_view name);  // throws ValueError if there is none

// The number of adjacent weights of a row that are stored together, and their bytes. Types
// without blocks have a block size of 1.
std::size_t block_size(DType dtype);
std::size_t bytes_per_block(DType dtype);

// The bytes of a row of weights. Throws ValueError unless the block size divides its length.
std::size_t bytes_per_row(DType dtype, std::size_t in_features);

// Converts a stored row to float. The sizes must fit; this is not checked. It is defined in
// 16_quantization/block_types.cpp. Source: ggml-quants.c, dequantize_row_*.
void dequantize_row(DType dtype, std::span<const std::byte> row,  // bytes_per_row(dtype, in)
                    std::span<Real> weights);                     // (in)

// The upper 16 bits of a float32: the same range, with 8 instead of 24 significant bits.
struct Bfloat16 {
    std::uint16_t bits = 0;
};

// Rounds to the nearest bfloat16, ties to even. Values above 3.396e38 become infinity; NaN
// stays NaN.
Bfloat16 to_bfloat16(float value);
float to_float(Bfloat16 value);

}  // namespace llm
