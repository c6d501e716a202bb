// Weights stored in blocks that share a scale: the quantized types of GGUF files, byte for
// byte.
#pragma once

#include <cstddef>
#include <span>

#include "common/tensors/dtype.hpp"
#include "common/tensors/real.hpp"

namespace llm {

// The number of adjacent weights of a row that are stored together, and their bytes. Types
// without blocks have a block size of 1.
std::size_t block_size(DType dtype);
std::size_t bytes_per_block(DType dtype);

// The bytes of a row of weights. Throws ShapeError unless the block size divides its length.
std::size_t bytes_per_row(DType dtype, std::size_t in_features);

// Converts a stored row to float. The sizes must fit; this is not checked.
// Source: ggml-quants.c, dequantize_row_*.
void dequantize_row(DType dtype, std::span<const std::byte> row,  // bytes_per_row(dtype, in)
                    std::span<Real> weights);                     // (in)

}  // namespace llm
