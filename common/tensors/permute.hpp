// Reordering the axes of a tensor.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// Swaps axes 1 and 2, into a new tensor: element (i, k, j, l) is element (i, j, k, l) of the
// given one. The last axis is copied as a whole, which is faster than xt::transpose. PyTorch:
// transpose(1, 2).
Tensor4 swap_axes_1_and_2(const Tensor4& tensor);  // (I, J, K, L) -> (I, K, J, L)

}  // namespace llm
