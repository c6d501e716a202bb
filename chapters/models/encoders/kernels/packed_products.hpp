// Kernels of encoders: products of float32 weights that were packed once, when the model was
// made. OpenBLAS packs them again for each product.
#pragma once

#include "chapters/15_fast/weight_matrix.hpp"

namespace llm::models {

// Weights of float32 in chapter 16's layout: as many rows as a register has lanes are
// interleaved, so that one load reads the same feature of each of them. Six tokens are
// multiplied at once. A product does not depend on the number of tokens. Source: "Anatomy of
// High-Performance Matrix Multiplication" (Goto and van de Geijn, 2008).
const WeightKernels& packed_float32_kernels();

}  // namespace llm::models
