// Chapter 07, steps of the program: RMSNorm in half precision.
#pragma once

#include "common/numbers/random.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// RMSNorm of float16 values, with and without an upcast to float32.
void run_in_half_precision();

// Where to cast back, and what bfloat16 rounds to.
void compare_casts(const Tensor3& hidden_states,  // (B, T, C)
                   Generator& generator);

}  // namespace llm
