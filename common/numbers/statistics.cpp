#include "common/numbers/statistics.hpp"

#include <cmath>
#include <numeric>

namespace llm {

double root_mean_square(std::span<const Real> values) {
    double sum_of_squares = 0;
    for (const Real value : values) sum_of_squares += double(value) * double(value);
    return std::sqrt(sum_of_squares / static_cast<double>(values.size()));
}

double mean_of(std::span<const Real> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) /
           static_cast<double>(values.size());
}

double largest_difference(std::span<const Real> a, std::span<const Real> b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(double(a[i]) - double(b[i])));
    return largest;
}

}  // namespace llm
