// The functions of CBLAS that xtensor-blas calls. Any other is missing when a program is
// linked.
#include <utility>

#include <xflens/cxxblas/drivers/cblas.h>

#include "common/web/blas.hpp"

using llm::web::StridedMatrix;

namespace {

// A matrix of which adjacent rows (row-major) or columns begin `stride` elements apart.
StridedMatrix strided(const float* data, int stride, bool by_columns) {
    return by_columns ? StridedMatrix{data, 1, stride} : StridedMatrix{data, stride, 1};
}

}  // namespace

extern "C" {

float cblas_sdot(int size, const float* x, int x_stride, const float* y, int y_stride) {
    return llm::web::sdot(size, x, x_stride, y, y_stride);
}

void cblas_sgemv(CBLAS_ORDER order, CBLAS_TRANSPOSE transpose, int num_rows, int num_columns,
                 float alpha, const float* a, int a_stride, const float* x, int x_stride,
                 float beta, float* result, int stride) {
    const bool transposed = transpose != CblasNoTrans;
    if (transposed) std::swap(num_rows, num_columns);
    llm::web::sgemv(num_rows, num_columns, alpha,
                    strided(a, a_stride, transposed != (order == CblasColMajor)), x, x_stride,
                    beta, result, stride);
}

void cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b,
                 int num_rows, int num_columns, int inner, float alpha, const float* a,
                 int a_stride, const float* b, int b_stride, float beta, float* result,
                 int stride) {
    // A product by columns is the product of the transposes, by rows, in the other order.
    if (order == CblasColMajor) {
        std::swap(transpose_a, transpose_b);
        std::swap(num_rows, num_columns);
        std::swap(a, b);
        std::swap(a_stride, b_stride);
    }
    llm::web::sgemm(num_rows, num_columns, inner, alpha,
                    strided(a, a_stride, transpose_a != CblasNoTrans),
                    strided(b, b_stride, transpose_b != CblasNoTrans), beta, result, stride);
}

// The product of a matrix and its own transpose. Both triangles of the symmetric result are
// computed, of which the caller wants one.
void cblas_ssyrk(CBLAS_ORDER order, CBLAS_UPLO, CBLAS_TRANSPOSE transpose, int size, int inner,
                 float alpha, const float* a, int stride, float beta, float* result,
                 int result_stride) {
    const bool first_transposed = transpose != CblasNoTrans;
    cblas_sgemm(order, transpose, first_transposed ? CblasNoTrans : CblasTrans, size, size,
                inner, alpha, a, stride, a, stride, beta, result, result_stride);
}

}  // extern "C"
