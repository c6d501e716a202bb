// Views of matrices. This header does not include xtensor, so that SIMD kernels, which cannot
// use the precompiled header, compile quickly.
#pragma once

#include <cstddef>
#include <span>

#include "common/tensors/real.hpp"

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

// Overwrite the result, or add to it? BLAS: beta = 0 or 1.
enum class Update { overwrite, accumulate };

}  // namespace llm
