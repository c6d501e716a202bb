#include "chapters/15_fast/kernels/simd.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "chapters/15_fast/kernels/registers.hpp"

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>

namespace llm {
namespace {

Real horizontal_sum(Floats values) { return hn::GetLane(hn::SumOfLanes(floats, values)); }

// Multiplies weights and inputs elementwise and sums the products lane by lane. The size is a
// multiple of four registers. A fused multiply-add (FMA) has a latency of about four clock
// cycles, but at least one can start in each cycle. With a single accumulator, each FMA would
// wait for the previous one; four independent accumulators allow four to be in flight.
template <typename Weight>
Floats sum_products(const Weight* weights, const Real* inputs, std::size_t size) {
    const std::size_t lanes = hn::Lanes(floats);
    Floats sum0 = hn::Zero(floats), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (std::size_t i = 0; i < size; i += 4 * lanes) {
        const Weight* w = weights + i;
        const Real* x = inputs + i;
        sum0 = hn::MulAdd(load(w), load(x), sum0);
        sum1 = hn::MulAdd(load(w + lanes), load(x + lanes), sum1);
        sum2 = hn::MulAdd(load(w + 2 * lanes), load(x + 2 * lanes), sum2);
        sum3 = hn::MulAdd(load(w + 3 * lanes), load(x + 3 * lanes), sum3);
    }
    return hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
}

Real widen(Real value) { return value; }
Real widen(Half value) { return static_cast<Real>(value); }
// As to_float of dtype.cpp, but inline: the compiler can vectorize the loops that call it.
Real widen(Bfloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// dot_rows with registers of this tag, four rows at a time. If fewer are left, the last one is
// multiplied several times: so a product never depends on the number of rows.
template <class Tag, class Element>
void dot_rows_of(Tag tag, BasicMatrixView<const Element> rows, std::span<const Real> x,
                 std::span<Real> products, Update update) {
    const std::size_t lanes = hn::Lanes(tag), size = x.size() - x.size() % lanes;
    for (std::size_t n = 0; n < rows.num_rows; n += 4) {
        const auto row = [&](std::size_t k) {
            return rows[std::min(n + k, rows.num_rows - 1)].data();
        };
        const Element *row0 = row(0), *row1 = row(1), *row2 = row(2), *row3 = row(3);
        auto sum0 = hn::Zero(tag), sum1 = sum0, sum2 = sum0, sum3 = sum0;
        for (std::size_t i = 0; i < size; i += lanes) {
            const auto shared = load(tag, &x[i]);
            sum0 = hn::MulAdd(load(tag, row0 + i), shared, sum0);
            sum1 = hn::MulAdd(load(tag, row1 + i), shared, sum1);
            sum2 = hn::MulAdd(load(tag, row2 + i), shared, sum2);
            sum3 = hn::MulAdd(load(tag, row3 + i), shared, sum3);
        }
        std::array<Real, 4> sums = horizontal_sums(tag, sum0, sum1, sum2, sum3);
        for (std::size_t k = 0; k < std::min<std::size_t>(4, rows.num_rows - n); ++k) {
            for (std::size_t i = size; i < x.size(); ++i) sums[k] += widen(row(k)[i]) * x[i];
            Real& product = products[n + k];
            product = update == Update::accumulate ? product + sums[k] : sums[k];
        }
    }
}

template <class Element>
void dot_rows_of(BasicMatrixView<const Element> rows, std::span<const Real> x,
                 std::span<Real> products, Update update) {
    if (x.size() < hn::Lanes(floats))
        dot_rows_of(four_floats, rows, x, products, update);
    else
        dot_rows_of(floats, rows, x, products, update);
}

// add_weighted_rows for the columns from `begin` on, one register at a time, as many as fit.
// Returns the first column that is left. Four rows have a sum each, for the same reason as in
// sum_products.
template <class Tag, class Element>
std::size_t add_weighted_columns(Tag tag, std::span<const Real> weights,
                                 BasicMatrixView<const Element> rows, std::span<Real> y,
                                 std::size_t begin) {
    const std::size_t lanes = hn::Lanes(tag);
    std::size_t i = begin;
    for (; i + lanes <= y.size(); i += lanes) {
        const auto add = [&](auto& sum, std::size_t n) {
            sum = hn::MulAdd(hn::Set(tag, weights[n]), load(tag, &rows[n][i]), sum);
        };
        auto sum0 = load(tag, &y[i]), sum1 = hn::Zero(tag), sum2 = sum1, sum3 = sum1;
        std::size_t n = 0;
        for (; n + 4 <= weights.size(); n += 4) {
            add(sum0, n);
            add(sum1, n + 1);
            add(sum2, n + 2);
            add(sum3, n + 3);
        }
        for (; n < weights.size(); ++n) add(sum0, n);
        hn::StoreU(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)), tag, &y[i]);
    }
    return i;
}

// The largest multiple of four registers that is not greater than a size.
std::size_t without_remainder(std::size_t size) {
    const std::size_t step = 4 * hn::Lanes(floats);
    return size - size % step;
}

template <class Element>
Real dot_of(std::span<const Element> row, std::span<const Real> x) {
    std::size_t i = without_remainder(row.size());
    Real sum = horizontal_sum(sum_products(row.data(), x.data(), i));
    for (; i < row.size(); ++i) sum += widen(row[i]) * x[i];
    return sum;
}

template <class Element>
void add_weighted_rows_of(std::span<const Real> weights, BasicMatrixView<const Element> rows,
                          std::span<Real> y) {
    // Keep four registers of the sum while all rows are added to them.
    const std::size_t lanes = hn::Lanes(floats), size = without_remainder(y.size());
    for (std::size_t i = 0; i < size; i += 4 * lanes) {
        Floats sum0 = load(&y[i]), sum1 = load(&y[i + lanes]);
        Floats sum2 = load(&y[i + 2 * lanes]), sum3 = load(&y[i + 3 * lanes]);
        for (std::size_t n = 0; n < weights.size(); ++n) {
            const Floats weight = hn::Set(floats, weights[n]);
            const Element* row = &rows[n][i];
            sum0 = hn::MulAdd(weight, load(row), sum0);
            sum1 = hn::MulAdd(weight, load(row + lanes), sum1);
            sum2 = hn::MulAdd(weight, load(row + 2 * lanes), sum2);
            sum3 = hn::MulAdd(weight, load(row + 3 * lanes), sum3);
        }
        hn::StoreU(sum0, floats, &y[i]);
        hn::StoreU(sum1, floats, &y[i + lanes]);
        hn::StoreU(sum2, floats, &y[i + 2 * lanes]);
        hn::StoreU(sum3, floats, &y[i + 3 * lanes]);
    }
    std::size_t i = add_weighted_columns(floats, weights, rows, y, size);
    i = add_weighted_columns(four_floats, weights, rows, y, i);
    for (; i < y.size(); ++i)
        for (std::size_t n = 0; n < weights.size(); ++n) y[i] += weights[n] * widen(rows[n][i]);
}

void store_halves(Floats values, Half* stored) {
#ifdef LLM_FLOAT16
    const hn::Rebind<hwy::float16_t, decltype(floats)> halves;
    hn::StoreU(hn::DemoteTo(halves, values), halves, reinterpret_cast<hwy::float16_t*>(stored));
#else
    std::array<Real, hn::MaxLanes(floats)> lanes;
    hn::StoreU(values, floats, lanes.data());
    for (std::size_t i = 0; i < lanes.size(); ++i) stored[i] = Half(lanes[i]);
#endif
}

// Highway's Exp is valid up to 104, whose exponential is infinity in float. For NaN it gives 0.
Floats exp(Floats values) {
    const Floats powers = hn::Exp(floats, hn::Min(values, hn::Set(floats, 104)));
    return hn::IfThenElse(hn::IsNaN(values), values, powers);
}

}  // namespace

Real dot(std::span<const Real> a, std::span<const Real> b) { return dot_of(a, b); }
Real dot(std::span<const Bfloat16> row, std::span<const Real> inputs) {
    return dot_of(row, inputs);
}

void dot_rows(ConstMatrixView rows, std::span<const Real> x, std::span<Real> products,
              Update update) {
    dot_rows_of(rows, x, products, update);
}
void dot_rows(BasicMatrixView<const Half> rows, std::span<const Real> x,
              std::span<Real> products) {
    dot_rows_of(rows, x, products, Update::overwrite);
}

void add_weighted_rows(std::span<const Real> weights, ConstMatrixView rows, std::span<Real> y) {
    add_weighted_rows_of(weights, rows, y);
}
void add_weighted_rows(std::span<const Real> weights, BasicMatrixView<const Half> rows,
                       std::span<Real> y) {
    add_weighted_rows_of(weights, rows, y);
}

void to_float(std::span<const Half> values, std::span<Real> result) {
    const std::size_t lanes = hn::Lanes(floats);
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes)
        hn::StoreU(load(&values[i]), floats, &result[i]);
    for (; i < values.size(); ++i) result[i] = widen(values[i]);
}

Real to_half(std::span<const Real> values, std::span<Half> result) {
    const std::size_t lanes = hn::Lanes(floats);
    Floats largest = hn::Zero(floats);
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes) {
        const Floats loaded = load(&values[i]);
        store_halves(loaded, &result[i]);
        largest = hn::Max(hn::Abs(loaded), largest);
    }
    Real maximum = hn::GetLane(hn::MaxOfLanes(floats, largest));
    for (; i < values.size(); ++i) {
        result[i] = Half(values[i]);
        maximum = std::max(maximum, std::abs(values[i]));
    }
    return maximum;
}

void prefetch(std::span<const std::byte> memory) {
    constexpr std::size_t cache_line = 64;
    for (std::size_t i = 0; i < memory.size(); i += cache_line) hwy::Prefetch(&memory[i]);
}

void dequantize(std::span<const Bfloat16> row, std::span<Real> weights) {
    for (std::size_t i = 0; i < row.size(); ++i) weights[i] = widen(row[i]);
}

Real amax(std::span<const Real> values) {
    const std::size_t lanes = hn::Lanes(floats);
    Floats max0 = hn::Set(floats, -std::numeric_limits<Real>::infinity());
    Floats max1 = max0, max2 = max0, max3 = max0;
    std::size_t i = 0;
    for (; i + 4 * lanes <= values.size(); i += 4 * lanes) {
        max0 = hn::Max(max0, load(&values[i]));
        max1 = hn::Max(max1, load(&values[i + lanes]));
        max2 = hn::Max(max2, load(&values[i + 2 * lanes]));
        max3 = hn::Max(max3, load(&values[i + 3 * lanes]));
    }
    std::array<Real, hn::MaxLanes(floats)> maxima;
    hn::StoreU(hn::Max(hn::Max(max0, max1), hn::Max(max2, max3)), floats, maxima.data());
    Real result = *std::max_element(maxima.data(), maxima.data() + lanes);
    for (; i < values.size(); ++i) result = std::max(result, values[i]);
    return result;
}

Real exp_and_sum(std::span<Real> values, Real scale, Real shift) {
    const std::size_t lanes = hn::Lanes(floats);
    const Floats scales = hn::Set(floats, scale), shifts = hn::Set(floats, shift);
    Floats sums = hn::Zero(floats);
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes) {
        const Floats powers = exp(hn::MulSub(load(&values[i]), scales, shifts));
        hn::StoreU(powers, floats, &values[i]);
        sums = hn::Add(sums, powers);
    }
    Real sum = horizontal_sum(sums);
    for (; i < values.size(); ++i) {
        values[i] = std::exp(values[i] * scale - shift);
        sum += values[i];
    }
    return sum;
}

void silu_and_mul(std::span<Real> gate, std::span<const Real> up) {
    const std::size_t lanes = hn::Lanes(floats);
    const Floats one = hn::Set(floats, 1);
    std::size_t i = 0;
    for (; i + lanes <= gate.size(); i += lanes) {
        const Floats x = load(&gate[i]);
        const Floats silu = hn::Div(x, hn::Add(one, exp(hn::Neg(x))));
        hn::StoreU(hn::Mul(silu, load(&up[i])), floats, &gate[i]);
    }
    for (; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

}  // namespace llm
