// Chapter 05, file 4 of 4: dropout, of attention weights here and of hidden states in chapter
// 06.
#pragma once

#include "common/numbers/random.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// In training only: sets each element to 0 with the given probability and divides the others by
// 1 - probability, so that the expected value stays. Throws ValueError unless
// 0 <= probability < 1. Source: Srivastava et al., 2014; torch.nn.Dropout.
Tensor4 dropout(const Tensor4& weights,  // (B, H, T, S)
                Real probability, Generator& generator);
Tensor3 dropout(const Tensor3& states,  // (B, T, C)
                Real probability, Generator& generator);

}  // namespace llm
