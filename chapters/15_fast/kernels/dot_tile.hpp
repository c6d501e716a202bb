// Chapter 15, kernels: the matrix product of a few tokens, in register tiles.
#pragma once

#include <cstddef>
#include <span>

#include "common/tensors/matmul.hpp"

namespace llm {

// outputs = inputs * rowsᵀ, on the calling thread, for a few rows of weights. Each register of
// weights that is loaded is multiplied by up to four tokens, and each register of inputs by up
// to four rows; a dot product uses both only once. While it computes, the processor reads
// next_weights, which are multiplied later, into its caches. The sizes are not checked.
void multiply_in_tiles(ConstMatrixView inputs,  // (N, in)
                       ConstMatrixView rows,    // (R, in)
                       MatrixView outputs,      // (N, R)
                       Update update = Update::overwrite,
                       std::span<const std::byte> next_weights = {});

}  // namespace llm
