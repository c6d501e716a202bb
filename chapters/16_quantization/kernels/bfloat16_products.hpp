// Chapter 16, kernels: products of bfloat16 weights and inputs that are rounded to
// bfloat16, too.
#pragma once

#include <cstddef>
#include <span>

#include "common/tensors/matrix_view.hpp"

namespace llm {

// Rounds the inputs of a product to the nearest bfloat16 (ties to even; NaN stays NaN), and
// interleaves the pairs of features of 16 tokens, or fewer if a register has fewer lanes.
std::size_t bfloat16_input_bytes(std::size_t num_tokens, std::size_t in_features);
void round_to_bfloat16(ConstMatrixView inputs,         // (N, in)
                       std::span<std::byte> rounded);  // bfloat16_input_bytes(N, in)

// outputs = inputs * rowsᵀ, on the calling thread, with rows of bfloat16. Products are
// accumulated in float32. The processor's own instruction treats magnitudes below 1.2e-38
// (denormal numbers) as 0.
void matmul_bfloat16(std::span<const std::byte> rows, std::size_t in_features,
                     std::span<const std::byte> inputs,  // bfloat16_input_bytes(N, in)
                     MatrixView outputs,                 // (N, number of rows)
                     Update update);

// Can the processor multiply pairs of bfloat16 and accumulate them in float32 with one
// instruction (AVX512_BF16)? Then matmul_bfloat16 is faster than a float32 product. Without,
// it is slower.
bool has_avx512_bf16();

}  // namespace llm
