#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

Matrix of_each_row(const Matrix& rows, Real (*reduce)(std::span<const Real>)) {
    const auto [num_rows, width] = dims(rows);
    Matrix result(std::array{num_rows, std::size_t{1}});
    for (std::size_t n = 0; n < num_rows; ++n)
        result(n, 0) = reduce({rows.data() + n * width, width});
    return result;
}

}  // namespace

Matrix elementwise_exp(Matrix x) {
    exp_in_place({x.data(), x.size()});
    return x;
}

Matrix row_max(const Matrix& rows) { return of_each_row(rows, max_of); }
Matrix row_sum(const Matrix& rows) { return of_each_row(rows, sum_of); }

}  // namespace llm
