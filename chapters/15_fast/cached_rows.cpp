#include "chapters/15_fast/cached_rows.hpp"

#include <algorithm>

#include "chapters/15_fast/kernels/simd.hpp"
#include "common/tensors/shape.hpp"

namespace llm {

std::size_t CachedRows::num_rows() const {
    if (paged_) return paged_->num_rows;
    return std::visit([](const auto& stored) { return stored.num_rows; }, stored_);
}
std::size_t CachedRows::num_columns() const {
    return std::visit([](const auto& stored) { return stored.num_columns; }, stored_);
}

CachedRows CachedRows::first(std::size_t count) const {
    if (paged_) return paged(paged_->pages, paged_->page_size, count);
    return adjacent(0, count);
}

CachedRows CachedRows::paged(std::span<const std::size_t> pages, std::size_t page_size,
                             std::size_t count) const {
    CachedRows rows = *this;
    rows.paged_ = Pages{pages, page_size, count};
    return rows;
}

std::size_t CachedRows::num_adjacent(std::size_t row) const {
    const std::size_t num_left = num_rows() - row;
    if (!paged_) return num_left;
    return std::min(paged_->page_size - row % paged_->page_size, num_left);
}

std::size_t CachedRows::stored_row(std::size_t row) const {
    if (!paged_) return row;
    const auto& [pages, page_size, num_rows] = *paged_;
    return pages[row / page_size] * page_size + row % page_size;
}

CachedRows CachedRows::adjacent(std::size_t begin, std::size_t count) const {
    const std::size_t first = stored_row(begin);
    return std::visit([&](const auto& stored) { return CachedRows(stored.rows(first, count)); },
                      stored_);
}

ConstMatrixView CachedRows::read(std::size_t begin, std::size_t count,
                                 std::span<Real> workspace) const {
    const std::size_t first = stored_row(begin);
    if (const auto* float32 = std::get_if<ConstMatrixView>(&stored_))
        return float32->rows(first, count);
    const auto& float16 = std::get<BasicMatrixView<const Half>>(stored_);
    const std::size_t width = float16.num_columns;
    require(workspace.size() >= count * width,
            "cache: a workspace of {} floats is too small for ({}, {})", workspace.size(),
            count, width);
    for (std::size_t n = 0; n < count; ++n)
        to_float(float16[first + n], workspace.subspan(n * width, width));
    return {workspace.data(), count, width, width};
}

void CachedRows::dot_rows(std::span<const Real> x, std::span<Real> products) const {
    if (!paged_)
        return std::visit([&](const auto& rows) { llm::dot_rows(rows, x, products); }, stored_);
    for (std::size_t begin = 0, count = 0; begin < num_rows(); begin += count) {
        count = num_adjacent(begin);
        adjacent(begin, count).dot_rows(x, products.subspan(begin, count));
    }
}

void CachedRows::add_weighted_rows(std::span<const Real> weights, std::span<Real> y) const {
    if (!paged_)
        return std::visit([&](const auto& rows) { llm::add_weighted_rows(weights, rows, y); },
                          stored_);
    for (std::size_t begin = 0, count = 0; begin < num_rows(); begin += count) {
        count = num_adjacent(begin);
        adjacent(begin, count).add_weighted_rows(weights.subspan(begin, count), y);
    }
}

}  // namespace llm
