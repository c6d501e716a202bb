// Chapter 16, kernels: products of integers, with weights that stay in their blocks.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/tensors/dtype.hpp"
#include "common/tensors/matrix_view.hpp"

namespace llm {

// Rounds the inputs of a product to integers from -127 to 127, in blocks of 32 with a float32
// scale each. The number of features must be a multiple of 32; this is not checked. An input
// that is not finite makes all products with its block NaN.
std::size_t quantized_input_bytes(std::size_t num_tokens, std::size_t in_features);
void quantize_inputs(ConstMatrixView inputs,           // (N, in)
                     std::span<std::byte> quantized);  // quantized_input_bytes(N, in)

// Interleaves rows of q8_0, q4_0, q5_0, q4_k or q6_k, as many at a time as a vector register
// has lanes (4, 8 or 16): first the scale of the first block of each row, then the first four
// bytes of its values, and so on, so that one load fills each lane from another row. What
// stands at an offset o of a row, with a size of s bytes, moves to lanes * o + s * lane.
// Missing rows of the last group are zeros. Source: llama.cpp, repack.cpp, for x86 and Arm.
std::size_t num_interleaved_rows();
void interleave_rows(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                     std::span<std::byte> interleaved);  // of a whole number of groups
// The inverse, of one row of a group.
void copy_interleaved_row(DType dtype, std::span<const std::byte> group, std::size_t lane,
                          std::span<std::byte> row);
// The rows of a group, or the first ones, as floats.
void dequantize_interleaved(DType dtype, std::span<const std::byte> group,
                            MatrixView rows);  // (up to num_interleaved_rows(), in)

// outputs = inputs * rowsᵀ, on the calling thread, with interleaved rows. Integers are
// multiplied and summed, and the sum of each block or group is scaled once. Source: llama.cpp,
// ggml_gemv_q4_0_8x8_q8_0 and others.
void matmul_quantized(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                      std::span<const std::byte> inputs,  // quantized_input_bytes(N, in)
                      MatrixView outputs,                 // (N, number of rows)
                      Update update);

// The instruction that multiplies integers, and the bits of its registers.
std::string integer_instruction();

// Is matmul_quantized faster than a float32 product of many tokens, too? With an instruction
// that sums four products of 8 bits (VNNI of x86, Arm's sdot), yes. With x86's maddubs, only if
// several sums of two products fit into 16 bits: not for q8_0.
bool is_fast_for_many_tokens(DType dtype);

}  // namespace llm
