#include "chapters/15_fast/cached_rows.hpp"

#include <algorithm>

#include "chapters/15_fast/kernels/simd.hpp"
#include "common/tensors/shape.hpp"

namespace llm {

CachedRows CachedRows::first(std::size_t count) const {
    if (page_size_ > 0) return paged(pages_, page_size_, count);
    return adjacent(0, count);
}

CachedRows CachedRows::paged(std::span<const std::size_t> pages, std::size_t page_size,
                             std::size_t count) const {
    CachedRows rows = *this;
    rows.pages_ = pages;
    rows.page_size_ = page_size;
    rows.num_paged_rows_ = count;
    return rows;
}

std::size_t CachedRows::num_adjacent(std::size_t row) const {
    const std::size_t in_page = page_size_ > 0 ? page_size_ - row % page_size_ : num_rows();
    return std::min(in_page, num_rows() - row);
}

std::size_t CachedRows::stored_row(std::size_t row) const {
    return page_size_ > 0 ? pages_[row / page_size_] * page_size_ + row % page_size_ : row;
}

CachedRows CachedRows::adjacent(std::size_t begin, std::size_t count) const {
    if (is_float16_) return float16_.rows(stored_row(begin), count);
    return float32_.rows(stored_row(begin), count);
}

ConstMatrixView CachedRows::read(std::size_t begin, std::size_t count,
                                 std::span<Real> workspace) const {
    if (!is_float16_ && count <= num_adjacent(begin))
        return float32_.rows(stored_row(begin), count);
    const std::size_t width = num_columns();
    require(workspace.size() >= count * width,
            "cache: a workspace of {} floats is too small for ({}, {})", workspace.size(),
            count, width);
    for (std::size_t n = 0; n < count; ++n) {
        const std::span<Real> row = workspace.subspan(n * width, width);
        const std::size_t stored = stored_row(begin + n);
        if (is_float16_)
            to_float(float16_[stored], row);
        else
            std::ranges::copy(float32_[stored], row.begin());
    }
    return {workspace.data(), count, width, width};
}

void CachedRows::dot_rows(std::span<const Real> x, std::span<Real> products) const {
    if (page_size_ > 0) {
        for (std::size_t begin = 0, count = 0; begin < num_rows(); begin += count) {
            count = num_adjacent(begin);
            adjacent(begin, count).dot_rows(x, products.subspan(begin, count));
        }
        return;
    }
    if (is_float16_) return llm::dot_rows(float16_, x, products);
    llm::dot_rows(float32_, x, products);
}

void CachedRows::add_weighted_rows(std::span<const Real> weights, std::span<Real> y) const {
    if (page_size_ > 0) {
        for (std::size_t begin = 0, count = 0; begin < num_rows(); begin += count) {
            count = num_adjacent(begin);
            adjacent(begin, count).add_weighted_rows(weights.subspan(begin, count), y);
        }
        return;
    }
    if (is_float16_) return llm::add_weighted_rows(weights, float16_, y);
    llm::add_weighted_rows(weights, float32_, y);
}

}  // namespace llm
