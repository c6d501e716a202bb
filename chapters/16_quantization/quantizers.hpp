// Chapter 16, file 3 of 4: from floats to the types of GGUF files.
#pragma once

#include <cstddef>
#include <span>

#include "chapters/16_quantization/block_types.hpp"

namespace llm {

// Rounds a row of weights to a dtype: each weight becomes the nearest value that its block can
// represent. Throws ValueError if blocks do not divide the row, or if a weight is not finite or
// too large for the dtype or for the float16 scale of its block. Source: ggml-quants.c,
// quantize_row_*_ref.
void quantize_row(DType dtype, std::span<const Real> weights,  // (in)
                  std::span<std::byte> row);                   // bytes_per_row(dtype, in)

// The dtype of rows of this length if another one is wanted: types whose blocks do not divide
// the row are replaced. Source: llama.cpp, llama_model_quantize.
DType stored_dtype(DType wanted, std::size_t in_features);

// Each type as a function; those of K-quants are in k_quants.cpp.
BlockQ8_0 quantize_q8_0(std::span<const Real, 32> weights);
BlockQ4_0 quantize_q4_0(std::span<const Real, 32> weights);
BlockQ5_0 quantize_q5_0(std::span<const Real, 32> weights);
BlockQ4_K quantize_q4_k(std::span<const Real, 256> weights);
BlockQ6_K quantize_q6_k(std::span<const Real, 256> weights);

// The weight with the largest magnitude, with its sign. There must be one.
Real largest_weight(std::span<const Real> weights);

// 1 / scale, or 0 for a scale that float16 rounds to 0: all integers of the block become 0.
Real inverse_of(Real scale);

}  // namespace llm
