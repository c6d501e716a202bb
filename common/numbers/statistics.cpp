#include "common/numbers/statistics.hpp"

#include <cmath>

namespace llm {

double root_mean_square(std::span<const Real> numbers) {
    double squares = 0;
    for (const Real number : numbers) squares += double(number) * double(number);
    return std::sqrt(squares / static_cast<double>(numbers.size()));
}

double largest_difference(std::span<const Real> a, std::span<const Real> b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(double(a[i]) - double(b[i])));
    return largest;
}

}  // namespace llm
