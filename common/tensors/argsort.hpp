// The order of the values of a vector.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace llm {

// The indices of the values by decreasing value, of equal ones the first index first: all of
// them, or the first `count`. Values: a Vector or a std::vector. PyTorch: torch.argsort with
// descending and stable; torch.topk.
template <typename Values>
std::vector<std::size_t> argsort_descending(const Values& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return order;
}

template <typename Values>
std::vector<std::size_t> argsort_descending(const Values& values, std::size_t count) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    count = std::min(count, order.size());
    std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(count), order.end(),
                      [&](std::size_t a, std::size_t b) {
                          return values[a] > values[b] || (values[a] == values[b] && a < b);
                      });
    order.resize(count);
    return order;
}

}  // namespace llm
