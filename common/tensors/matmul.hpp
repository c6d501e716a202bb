// Matrix products into memory that is there already, for chapter 12. (xtensor's linalg::dot
// asks for new memory every time; to be handed zeroed pages can take longer than the product.)
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// Rows of numbers that lie somewhere in memory, each so many numbers behind the one before.
template <class Number>
struct RowsOf {
    Number* data = nullptr;
    std::size_t count = 0, width = 0, stride = 0;

    std::span<Number> operator[](std::size_t row) const { return {data + row * stride, width}; }
    // So many of the rows, from a first one; or so many columns of all rows. Neither is
    // checked.
    RowsOf rows(std::size_t first, std::size_t number) const {
        return {data + first * stride, number, width, stride};
    }
    RowsOf columns(std::size_t first, std::size_t number) const {
        return {data + first, count, number, stride};
    }
    operator RowsOf<const Number>() const { return {data, count, width, stride}; }
};
using Rows = RowsOf<Real>;
using ConstRows = RowsOf<const Real>;

inline Rows rows_of(Matrix& matrix) {
    return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}
inline ConstRows rows_of(const Matrix& matrix) {
    return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}

// What becomes of the numbers that the result held before.
enum class Old { replace, keep };

// result = a · bᵀ, or result + a · bᵀ: each number is the dot product of a row of a and a row
// of b. Throws ShapeError unless (N, K) and (M, K) meet an (N, M).
void multiply_rows(ConstRows a, ConstRows b, Rows result, Old old = Old::replace);

// result = a · b, or result + a · b. Throws ShapeError unless (N, K) and (K, M) meet an (N, M).
void multiply(ConstRows a, ConstRows b, Rows result, Old old = Old::replace);

}  // namespace llm
