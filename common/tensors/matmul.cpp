#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

void gemm(ConstMatrixView a, ConstMatrixView b, bool transpose_b, MatrixView result,
          Update update) {
    const auto [inner, columns] = transpose_b ? std::pair(b.num_columns, b.num_rows)
                                              : std::pair(b.num_rows, b.num_columns);
    require(a.num_columns == inner && result.num_rows == a.num_rows &&
                result.num_columns == columns,
            "matmul: the product of ({}, {}) and ({}, {}) is not ({}, {})", a.num_rows,
            a.num_columns, inner, columns, result.num_rows, result.num_columns);
    const auto index = [](std::size_t size) { return static_cast<xt::blas_index_t>(size); };
    const Real alpha = 1, beta = update == Update::accumulate ? Real(1) : Real(0);
    cxxblas::gemm<xt::blas_index_t>(
        cxxblas::RowMajor, cxxblas::NoTrans, transpose_b ? cxxblas::Trans : cxxblas::NoTrans,
        index(a.num_rows), index(columns), index(inner), alpha, a.data, index(a.stride), b.data,
        index(b.stride), beta, result.data, index(result.stride));
}

}  // namespace

void matmul(ConstMatrixView a, ConstMatrixView b, MatrixView result, Update update) {
    gemm(a, b, false, result, update);
}
void matmul_transposed(ConstMatrixView a, ConstMatrixView b, MatrixView result, Update update) {
    gemm(a, b, true, result, update);
}

}  // namespace llm
