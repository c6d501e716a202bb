#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

void product(ConstRows a, ConstRows b, bool transpose_b, Rows result, Old old) {
    const auto [inner, columns] =
        transpose_b ? std::pair(b.width, b.count) : std::pair(b.count, b.width);
    require(a.width == inner && result.count == a.count && result.width == columns,
            "product: ({}, {}) and ({}, {}) do not make ({}, {})", a.count, a.width, inner,
            columns, result.count, result.width);
    const auto number = [](std::size_t size) { return static_cast<xt::blas_index_t>(size); };
    cxxblas::gemm<xt::blas_index_t>(
        cxxblas::RowMajor, cxxblas::NoTrans, transpose_b ? cxxblas::Trans : cxxblas::NoTrans,
        number(a.count), number(columns), number(inner), Real(1), a.data, number(a.stride),
        b.data, number(b.stride), old == Old::keep ? Real(1) : Real(0), result.data,
        number(result.stride));
}

}  // namespace

void multiply_rows(ConstRows a, ConstRows b, Rows result, Old old) {
    product(a, b, true, result, old);
}
void multiply(ConstRows a, ConstRows b, Rows result, Old old) {
    product(a, b, false, result, old);
}

}  // namespace llm
