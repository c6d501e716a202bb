#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

using cxxblas::NoTrans, cxxblas::Trans;

// The numbers of rows and columns of a matrix, or of its transpose.
std::pair<std::size_t, std::size_t> size_of(ConstMatrixView matrix,
                                            cxxblas::Transpose transpose) {
    if (transpose == Trans) return {matrix.num_columns, matrix.num_rows};
    return {matrix.num_rows, matrix.num_columns};
}

void gemm(ConstMatrixView a, cxxblas::Transpose transpose_a, ConstMatrixView b,
          cxxblas::Transpose transpose_b, MatrixView result, Update update) {
    const auto [rows, inner_a] = size_of(a, transpose_a);
    const auto [inner, columns] = size_of(b, transpose_b);
    require(inner_a == inner && result.num_rows == rows && result.num_columns == columns,
            "matmul: the product of ({}, {}) and ({}, {}) is not ({}, {})", rows, inner_a,
            inner, columns, result.num_rows, result.num_columns);
    const auto index = [](std::size_t size) { return static_cast<xt::blas_index_t>(size); };
    const Real alpha = 1, beta = update == Update::accumulate ? Real(1) : Real(0);
    cxxblas::gemm<xt::blas_index_t>(cxxblas::RowMajor, transpose_a, transpose_b, index(rows),
                                    index(columns), index(inner), alpha, a.data,
                                    index(a.stride), b.data, index(b.stride), beta, result.data,
                                    index(result.stride));
}

}  // namespace

void matmul(ConstMatrixView a, ConstMatrixView b, MatrixView result, Update update) {
    gemm(a, NoTrans, b, NoTrans, result, update);
}
void matmul_transposed(ConstMatrixView a, ConstMatrixView b, MatrixView result, Update update) {
    gemm(a, NoTrans, b, Trans, result, update);
}
Matrix matmul(const Matrix& a, const Matrix& b) {
    Matrix result(std::array{a.shape(0), b.shape(1)});
    matmul(view_of(a), view_of(b), view_of(result));
    return result;
}
Matrix matmul_transposed(const Matrix& a, const Matrix& b) {
    Matrix result(std::array{a.shape(0), b.shape(0)});
    matmul_transposed(view_of(a), view_of(b), view_of(result));
    return result;
}
void transposed_matmul(ConstMatrixView a, ConstMatrixView b, MatrixView result, Update update) {
    gemm(a, Trans, b, NoTrans, result, update);
}
Matrix transposed_matmul(const Matrix& a, const Matrix& b) {
    Matrix result(std::array{a.shape(1), b.shape(1)});
    transposed_matmul(view_of(a), view_of(b), view_of(result));
    return result;
}

}  // namespace llm
