// Summary statistics of whole tensors, which the programs show.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// sqrt(mean(x²)).
double root_mean_square(std::span<const Real> values);
// The mean, added up in double.
double mean_of(std::span<const Real> values);
// max |a - b|, for a and b of the same size.
double largest_difference(std::span<const Real> a, std::span<const Real> b);

template <std::size_t N>
double mean_of(const xt::xtensor<Real, N>& tensor) {
    return mean_of({tensor.data(), tensor.size()});
}
template <std::size_t N>
double root_mean_square(const xt::xtensor<Real, N>& tensor) {
    return root_mean_square({tensor.data(), tensor.size()});
}

// max |a - b|. Throws ValueError unless the shapes are equal.
template <std::size_t N>
double largest_difference(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    require(a.shape() == b.shape(), "largest_difference: {} is not {}", a.shape(), b.shape());
    return largest_difference({a.data(), a.size()}, {b.data(), b.size()});
}

}  // namespace llm
