// Matrix products of views: BLAS's gemm, without allocating memory. (xtensor's linalg::dot
// allocates its result; getting fresh pages from the system can take longer than the product.)
#pragma once

#include "common/tensors/matrix_view.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

inline MatrixView view_of(Matrix& matrix) {
    return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}
inline ConstMatrixView view_of(const Matrix& matrix) {
    return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}

// result = a b. Throws ValueError unless the shapes fit.
void matmul(ConstMatrixView a,                   // (N, K)
            ConstMatrixView b,                   // (K, M)
            MatrixView result,                   // (N, M)
            Update update = Update::overwrite);  // accumulate: result += a b

// result = a bᵀ, as in a linear layer: element (n, m) is the dot product of row n of a and row
// m of b. Throws ValueError unless the shapes fit.
void matmul_transposed(ConstMatrixView a,                   // (N, K)
                       ConstMatrixView b,                   // (M, K)
                       MatrixView result,                   // (N, M)
                       Update update = Update::overwrite);  // accumulate: result += a bᵀ

// result = aᵀ b, as in the gradient of a weight: element (n, m) is the dot product of column n
// of a and column m of b. Throws ValueError unless the shapes fit.
void transposed_matmul(ConstMatrixView a,                   // (K, N)
                       ConstMatrixView b,                   // (K, M)
                       MatrixView result,                   // (N, M)
                       Update update = Update::overwrite);  // accumulate: result += aᵀ b

// The same, into a new matrix: a b, a bᵀ and aᵀ b.
Matrix matmul(const Matrix& a, const Matrix& b);             // (N, K), (K, M) -> (N, M)
Matrix matmul_transposed(const Matrix& a, const Matrix& b);  // (N, K), (M, K) -> (N, M)
Matrix transposed_matmul(const Matrix& a, const Matrix& b);  // (K, N), (K, M) -> (N, M)

}  // namespace llm
