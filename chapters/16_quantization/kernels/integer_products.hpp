// Chapter 16, kernels: products of integers, with weights that stay in their blocks.
#pragma once

#include <cstddef>
#include <span>

#include "common/tensors/dtype.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// Rounds the inputs of a product to integers from -127 to 127, in blocks of 32 with a float32
// scale each. The number of features must be a multiple of 32; this is not checked. An input
// that is not finite makes all products with its block NaN.
std::size_t quantized_input_bytes(std::size_t num_tokens, std::size_t in_features);
void quantize_inputs(ConstMatrixView inputs,           // (N, in)
                     std::span<std::byte> quantized);  // quantized_input_bytes(N, in)

// outputs = inputs * rowsᵀ, on the calling thread, with rows of q8_0, q4_0, q5_0, q4_k or q6_k.
// Integers are multiplied and summed, and the sum of each block or group is scaled once.
// Source: llama.cpp, ggml_vec_dot_q8_0_q8_0 and others.
void matmul_quantized(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                      std::span<const std::byte> inputs,  // quantized_input_bytes(N, in)
                      MatrixView outputs,                 // (N, number of rows)
                      Update update);

// Can the processor multiply and sum integers of 8 bits with one instruction (VNNI)? Then
// matmul_quantized is two to three times as fast as a float32 product of many tokens. Without,
// it is faster for a few tokens only, whose time is that of reading the weights.
bool has_vnni();

// As dequantize_row (block_types.hpp), but faster.
void dequantize_by_unpacking(DType dtype, std::span<const std::byte> row,
                             std::span<Real> weights);  // (in)

}  // namespace llm
