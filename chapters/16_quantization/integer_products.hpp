// Chapter 16: products of integers, with weights that stay in their blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/tensors/dtype.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// Up to 256 weights of a row, unpacked from the blocks of any dtype. The integers have no sign:
// weight i is scales[i / g] * values[i] - mins[i / g], with groups of g = 32 (q6_k: 16).
struct UnpackedWeights {
    std::size_t size = 0;  // a multiple of 32
    alignas(64) std::array<std::uint8_t, 256> values{};
    alignas(64) std::array<Real, 16> scales{}, mins{};
};
std::size_t group_size(DType dtype);
inline constexpr std::size_t max_unpacked = 256;

// Unpacks q8_0, q4_0, q5_0, q4_k or q6_k. The sizes must fit; this is not checked.
void unpack(DType dtype, std::span<const std::byte> blocks, std::size_t size,
            UnpackedWeights& weights);

// The same as dequantize_row (block_types.hpp), faster.
void dequantize_by_unpacking(DType dtype, std::span<const std::byte> row,
                             std::span<Real> weights);  // (in)

// Rounds the inputs of a product to integers from -127 to 127, in blocks of 32 with a float32
// scale each. The size must be a multiple of 32; this is not checked. An input that is not
// finite makes all products with its block NaN.
std::size_t quantized_input_bytes(std::size_t in_features);
void quantize_inputs(std::span<const Real> inputs,     // (in)
                     std::span<std::byte> quantized);  // quantized_input_bytes(in)

inline constexpr std::size_t max_quantized_tokens = 16;

// outputs = inputs * rowsᵀ for 1 to 16 tokens. Integers are multiplied and summed, and each
// block's sum is scaled once. Source: llama.cpp, ggml_vec_dot_q8_0_q8_0 and others.
void matmul_quantized(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                      std::span<const std::byte> inputs,  // N times quantized_input_bytes(in)
                      MatrixView outputs,                 // (N, number of rows)
                      Update update);

}  // namespace llm
