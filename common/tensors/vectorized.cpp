#include "common/tensors/vectorized.hpp"

#include <array>
#include <functional>
#include <limits>

namespace llm {
namespace {

// A sum or maximum of many numbers has as many partial results as fit into a vector register or
// two: the compiler may not change the order of the additions, and each one waits for the last.
constexpr std::size_t num_lanes = 32;

template <class Combine, class Element>
Real reduce(std::size_t size, Real initial, Combine combine, Element element) {
    std::array<Real, num_lanes> lanes;
    lanes.fill(initial);
    std::size_t i = 0;
    for (; i + num_lanes <= size; i += num_lanes)
        for (std::size_t lane = 0; lane < num_lanes; ++lane)
            lanes[lane] = combine(lanes[lane], element(i + lane));
    Real result = initial;
    for (; i < size; ++i) result = combine(result, element(i));
    for (const Real lane : lanes) result = combine(result, lane);
    return result;
}

Real larger(Real a, Real b) { return a < b ? b : a; }

}  // namespace

void exp_in_place(std::span<Real> x) {
    for (Real& element : x) element = vectorizable_exp(element);
}

Real max_of(std::span<const Real> row) {
    return reduce(row.size(), std::numeric_limits<Real>::lowest(), larger,
                  [row](std::size_t i) { return row[i]; });
}

Real sum_of(std::span<const Real> row) {
    return reduce(row.size(), Real(0), std::plus<Real>(),
                  [row](std::size_t i) { return row[i]; });
}

Real dot_product(std::span<const Real> a, std::span<const Real> b) {
    return reduce(a.size(), Real(0), std::plus<Real>(),
                  [a, b](std::size_t i) { return a[i] * b[i]; });
}

}  // namespace llm
