// Matrix products of views: BLAS's gemm, without allocating memory. (xtensor's linalg::dot
// allocates its result; getting fresh pages from the system can take longer than the product.)
#pragma once

#include <cstddef>
#include <span>

#include "common/tensors/tensor.hpp"

namespace llm {

// A row-major matrix, or a block of one, in memory that it does not own. Adjacent rows begin
// "stride" elements apart (BLAS: leading dimension).
template <class Element>
struct BasicMatrixView {
    Element* data = nullptr;
    std::size_t num_rows = 0, num_columns = 0, stride = 0;

    std::span<Element> operator[](std::size_t row) const {
        return {data + row * stride, num_columns};
    }
    // A block of adjacent rows, or of adjacent columns. Bounds are not checked.
    BasicMatrixView rows(std::size_t first, std::size_t count) const {
        return {data + first * stride, count, num_columns, stride};
    }
    BasicMatrixView columns(std::size_t first, std::size_t count) const {
        return {data + first, num_rows, count, stride};
    }
    operator BasicMatrixView<const Element>() const {
        return {data, num_rows, num_columns, stride};
    }
};
using MatrixView = BasicMatrixView<Real>;
using ConstMatrixView = BasicMatrixView<const Real>;

inline MatrixView view_of(Matrix& matrix) {
    return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}
inline ConstMatrixView view_of(const Matrix& matrix) {
    return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}

// Overwrite the result, or add to it? BLAS: beta = 0 or 1.
enum class Update { overwrite, accumulate };

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
