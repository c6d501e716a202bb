// Chapter 16, file 1 of 4: rounding weights to integers, without storing them in fewer bytes.
#pragma once

#include "chapters/09_full_model/model.hpp"

namespace llm {

// Rounds each weight to an integer from -m to m, with m = 2^(num_bits - 1) - 1, times the scale
// of its block, and returns the rounded weights as floats. The scale maps the largest magnitude
// of the block to m: symmetric, or absmax, quantization. The last block of a row may be
// shorter. Throws ValueError if block_size is 0 or num_bits is not 2 to 8. Source: PyTorch,
// fake_quantize.
Matrix fake_quantize(const Matrix& weights,  // (out, in)
                     std::size_t block_size, int num_bits);

// The model with all weight matrices rounded in this way.
Model fake_quantize(const Model& model, std::size_t block_size, int num_bits);

// Root mean square of the error, relative to that of the weights.
double relative_error(const Matrix& rounded, const Matrix& weights);  // both (out, in)

}  // namespace llm
