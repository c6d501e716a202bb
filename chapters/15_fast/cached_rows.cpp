#include "chapters/15_fast/cached_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "chapters/15_fast/kernels/simd.hpp"
#include "common/tensors/shape.hpp"

#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

namespace llm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// As many floats as a register holds, at most 16, and as many float16.
constexpr hn::CappedTag<Real, 16> register_of_floats;
[[maybe_unused]] constexpr hn::Rebind<hwy::float16_t, decltype(register_of_floats)>
    register_of_halves;
using Register = hn::Vec<decltype(register_of_floats)>;

Register load_floats(const Real* values) { return hn::LoadU(register_of_floats, values); }

// Does one instruction convert a register? Otherwise Highway emulates it, but without
// infinities and NaN, and rounds toward 0.
#if defined(__F16C__) || HWY_TARGET == HWY_NEON
#define LLM_FLOAT16
#endif

Register load_halves(const Half* values) {
#ifdef LLM_FLOAT16
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(values);
    return hn::PromoteTo(register_of_floats, hn::LoadU(register_of_halves, halves));
#else
    // Move exponent and mantissa to their places. The exponents differ by 127 - 15 = 112.
    constexpr hn::Rebind<std::uint16_t, decltype(register_of_floats)> words;
    constexpr hn::Rebind<std::uint32_t, decltype(register_of_floats)> integers;
    const auto bits = hn::PromoteTo(
        integers, hn::LoadU(words, reinterpret_cast<const std::uint16_t*>(values)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(integers, 0x7FFF)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(integers, 0x8000)));
    const Register finite = hn::Mul(hn::BitCast(register_of_floats, magnitude),
                                    hn::Set(register_of_floats, 0x1p112f));
    const Register infinite_or_nan =
        hn::BitCast(register_of_floats, hn::Or(magnitude, hn::Set(integers, 0x7F800000)));
    const Register value = hn::IfThenElse(hn::Ge(finite, hn::Set(register_of_floats, 65536)),
                                          infinite_or_nan, finite);
    return hn::Or(value, hn::BitCast(register_of_floats, sign));
#endif
}

void store_halves(Register floats, Half* values) {
#ifdef LLM_FLOAT16
    hn::StoreU(hn::DemoteTo(register_of_halves, floats), register_of_halves,
               reinterpret_cast<hwy::float16_t*>(values));
#else
    std::array<Real, hn::MaxLanes(register_of_floats)> stored;
    hn::StoreU(floats, register_of_floats, stored.data());
    for (std::size_t i = 0; i < stored.size(); ++i) values[i] = Half(stored[i]);
#endif
}

Real dot(std::span<const Half> row, std::span<const Real> x) {
    const std::size_t lanes = hn::Lanes(register_of_floats);
    Register sum0 = hn::Zero(register_of_floats), sum1 = sum0;
    std::size_t i = 0;
    for (; i + 2 * lanes <= row.size(); i += 2 * lanes) {
        sum0 = hn::MulAdd(load_halves(&row[i]), load_floats(&x[i]), sum0);
        sum1 = hn::MulAdd(load_halves(&row[i + lanes]), load_floats(&x[i + lanes]), sum1);
    }
    Real sum = hn::GetLane(hn::SumOfLanes(register_of_floats, hn::Add(sum0, sum1)));
    for (; i < row.size(); ++i) sum += static_cast<Real>(row[i]) * x[i];
    return sum;
}

// Adds weighted rows to N registers of y, from y[i] on. The sums stay in the registers while
// all rows are added to them.
template <std::size_t N>
void add_weighted_columns(std::span<const Real> weights, BasicMatrixView<const Half> rows,
                          std::span<Real> y, std::size_t i) {
    const std::size_t lanes = hn::Lanes(register_of_floats);
    std::array<Register, N> sums;
    for (std::size_t k = 0; k < N; ++k) sums[k] = load_floats(&y[i + k * lanes]);
    for (std::size_t n = 0; n < weights.size(); ++n) {
        const Register weight = hn::Set(register_of_floats, weights[n]);
        for (std::size_t k = 0; k < N; ++k)
            sums[k] = hn::MulAdd(weight, load_halves(&rows[n][i + k * lanes]), sums[k]);
    }
    for (std::size_t k = 0; k < N; ++k)
        hn::StoreU(sums[k], register_of_floats, &y[i + k * lanes]);
}

}  // namespace

void to_float(std::span<const Half> values, std::span<Real> result) {
    const std::size_t lanes = hn::Lanes(register_of_floats);
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes)
        hn::StoreU(load_halves(&values[i]), register_of_floats, &result[i]);
    for (; i < values.size(); ++i) result[i] = static_cast<Real>(values[i]);
}

Real to_half(std::span<const Real> values, std::span<Half> result) {
    const std::size_t lanes = hn::Lanes(register_of_floats);
    Register largest = hn::Zero(register_of_floats);
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes) {
        const Register floats = load_floats(&values[i]);
        store_halves(floats, &result[i]);
        largest = hn::Max(hn::Abs(floats), largest);
    }
    Real maximum = hn::GetLane(hn::MaxOfLanes(register_of_floats, largest));
    for (; i < values.size(); ++i) {
        result[i] = Half(values[i]);
        maximum = std::max(maximum, std::abs(values[i]));
    }
    return maximum;
}

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
    const std::size_t first = stored_row(begin);
    if (!is_float16_) return float32_.rows(first, count);
    const std::size_t width = float16_.num_columns;
    require(workspace.size() >= count * width,
            "cache: a workspace of {} floats is too small for ({}, {})", workspace.size(),
            count, width);
    for (std::size_t n = 0; n < count; ++n)
        to_float(float16_[first + n], workspace.subspan(n * width, width));
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
    if (!is_float16_) return llm::dot_rows(float32_, x, products);
    for (std::size_t n = 0; n < float16_.num_rows; ++n) products[n] = dot(float16_[n], x);
}

void CachedRows::add_weighted_rows(std::span<const Real> weights, std::span<Real> y) const {
    if (page_size_ > 0) {
        for (std::size_t begin = 0, count = 0; begin < num_rows(); begin += count) {
            count = num_adjacent(begin);
            adjacent(begin, count).add_weighted_rows(weights.subspan(begin, count), y);
        }
        return;
    }
    if (!is_float16_) return llm::add_weighted_rows(weights, float32_, y);
    const std::size_t lanes = hn::Lanes(register_of_floats);
    std::size_t i = 0;
    for (; i + 4 * lanes <= y.size(); i += 4 * lanes)
        add_weighted_columns<4>(weights, float16_, y, i);
    for (; i + lanes <= y.size(); i += lanes) add_weighted_columns<1>(weights, float16_, y, i);
    for (; i < y.size(); ++i)
        for (std::size_t n = 0; n < weights.size(); ++n)
            y[i] += weights[n] * static_cast<Real>(float16_[n][i]);
}

}  // namespace llm
