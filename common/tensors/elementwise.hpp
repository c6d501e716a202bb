// Functions of each element or each row of a matrix. (xtensor evaluates such expressions one
// element at a time, and the C library's exp is a call for each number.)
#pragma once

#include "common/tensors/tensor.hpp"
#include "common/tensors/vectorized.hpp"

namespace llm {

// e^x of each element.
Matrix elementwise_exp(Matrix x);  // (N, M) -> (N, M)

// The largest element of each row, or the lowest finite number if the row has no larger one;
// and the sum of each row. PyTorch: amax and sum with dim=1, keepdim=True.
Matrix row_max(const Matrix& rows);  // (N, M) -> (N, 1)
Matrix row_sum(const Matrix& rows);  // (N, M) -> (N, 1)

}  // namespace llm
