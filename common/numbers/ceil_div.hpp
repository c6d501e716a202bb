// Integer division that rounds up.
#pragma once

#include <concepts>
#include <type_traits>

namespace llm {

// How many parts of this size it takes to hold a number: ceil(number / size). Source: PyTorch,
// ATen/ceil_div.h.
template <std::unsigned_integral Size>
constexpr Size ceil_div(Size number, std::type_identity_t<Size> size) {
    return (number + size - 1) / size;
}

}  // namespace llm
