// Chapter 15, file 7 of 10: rows of a KV cache, in float32 or float16.
#pragma once

#include <span>

#include "common/tensors/half.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// The keys or values of one head, (S, D): a view of a cache, whose rows are adjacent or in
// pages.
class CachedRows {
 public:
    CachedRows(ConstMatrixView rows) : float32_(rows) {}
    CachedRows(MatrixView rows) : float32_(rows) {}
    CachedRows(BasicMatrixView<const Half> rows) : float16_(rows), is_float16_(true) {}

    std::size_t num_rows() const {
        return page_size_ > 0 ? num_paged_rows_ : num_stored_rows();
    }
    std::size_t num_columns() const {
        return is_float16_ ? float16_.num_columns : float32_.num_columns;
    }
    CachedRows first(std::size_t count) const;

    // Rows that are in pages of adjacent rows: row n of the result is row
    // pages[n / page_size] * page_size + n % page_size of this view. It refers to the pages.
    CachedRows paged(std::span<const std::size_t> pages, std::size_t page_size,
                     std::size_t count) const;

    // Rows as floats: a view of the cache or, if it is float16 or they are in several pages, of
    // the workspace, into which they are copied. Throws ValueError if the workspace is smaller
    // than (count, D).
    ConstMatrixView read(std::size_t begin, std::size_t count, std::span<Real> workspace) const;

    // The products of kernels/simd.hpp. float16 is converted in registers. Sizes are not
    // checked.
    void dot_rows(std::span<const Real> x,                 // (D)
                  std::span<Real> products) const;         // (S)
    void add_weighted_rows(std::span<const Real> weights,  // (S)
                           std::span<Real> y) const;       // (D)

 private:
    std::size_t num_stored_rows() const {
        return is_float16_ ? float16_.num_rows : float32_.num_rows;
    }
    std::size_t stored_row(std::size_t row) const;
    // How many rows from this one on are adjacent in memory.
    std::size_t num_adjacent(std::size_t row) const;
    CachedRows adjacent(std::size_t begin, std::size_t count) const;

    ConstMatrixView float32_;
    BasicMatrixView<const Half> float16_;
    bool is_float16_ = false;
    std::span<const std::size_t> pages_{};
    std::size_t page_size_ = 0, num_paged_rows_ = 0;  // 0: all rows are adjacent
};

}  // namespace llm
