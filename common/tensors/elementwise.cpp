#include "common/tensors/elementwise.hpp"

#include <functional>

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

template <class Reduce>
Matrix of_each_row(const Matrix& rows, Reduce reduce_row) {
    const auto [num_rows, width] = dims(rows);
    Matrix result(std::array{num_rows, std::size_t{1}});
    for (std::size_t n = 0; n < num_rows; ++n)
        result(n, 0) = reduce_row(std::span<const Real>(rows.data() + n * width, width));
    return result;
}

}  // namespace

Matrix elementwise_exp(Matrix x) {
    Real* const elements = x.data();
    for (std::size_t i = 0; i < x.size(); ++i) elements[i] = vectorizable_exp(elements[i]);
    return x;
}

Matrix row_max(const Matrix& rows) {
    return of_each_row(rows, [](std::span<const Real> row) {
        return reduce(row.size(), std::numeric_limits<Real>::lowest(), larger,
                      [row](std::size_t i) { return row[i]; });
    });
}

Matrix row_sum(const Matrix& rows) {
    return of_each_row(rows, [](std::span<const Real> row) {
        return reduce(row.size(), Real(0), std::plus<Real>(),
                      [row](std::size_t i) { return row[i]; });
    });
}

Real dot_product(std::span<const Real> a, std::span<const Real> b) {
    return reduce(a.size(), Real(0), std::plus<Real>(),
                  [a, b](std::size_t i) { return a[i] * b[i]; });
}

}  // namespace llm
