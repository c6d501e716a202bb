// Chapter 15, kernels: the matrix product of a few tokens, in register tiles.
#pragma once

#include <cstddef>

#include "common/tensors/dtype.hpp"
#include "common/tensors/matrix_view.hpp"

namespace llm {

// outputs = inputs * rowsᵀ, on the calling thread. Each register of weights that is loaded is
// multiplied by up to six tokens, and each register of inputs by up to four rows; a dot product
// uses both only once. The sizes are not checked.
void multiply_in_tiles(ConstMatrixView inputs,  // (N, in)
                       ConstMatrixView rows,    // (R, in)
                       MatrixView outputs,      // (N, R)
                       Update update = Update::overwrite);

// The same for weights of bfloat16, which are converted to float in registers.
void multiply_in_tiles(ConstMatrixView inputs, BasicMatrixView<const Bfloat16> rows,
                       MatrixView outputs, Update update = Update::overwrite);

}  // namespace llm
