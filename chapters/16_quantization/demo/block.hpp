// Chapter 16, steps of the program: blocks of weights.
#pragma once

#include "common/numbers/random.hpp"
#include "common/tensors/dtype.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

double bits_per_weight(DType dtype);

// The weights are trained ones.
void eight_weights(const Matrix& weights);     // (out, in)
void scales_of_blocks(const Matrix& weights);  // (out, in)
void k_quant_block(const Matrix& weights);     // (out, in), in at least 256
void errors_of_dtypes(const Matrix& weights,   // (out, in), divisible by 256
                      Generator& generator);
void integer_dot_product(const Matrix& weights,      // (out, in)
                         const Vector& activation);  // (in)

}  // namespace llm
