// Chapter 15, steps of the program: decoding at the bandwidth of the memory.
#pragma once

#include "chapters/15_fast/demo/timing.hpp"
#include "common/numbers/random.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

void decode_matvec(const Timing& timing, const Matrix& weight,  // (out, in)
                   Generator& generator);
void batched_matmul(const Timing& timing, const Matrix& weight,  // (out, in)
                    Generator& generator);

}  // namespace llm
