// Included before each file that is compiled for WebAssembly: what the lessons and libraries
// use and Emscripten's standard library, libc++ 14, lacks.
#pragma once

#ifdef __cplusplus
#include <algorithm>
#include <cfenv>
#include <iterator>
#include <version>

// WebAssembly has no floating-point exceptions; xtl has names for them.
#ifndef FE_DIVBYZERO
#define FE_INVALID 1
#define FE_DIVBYZERO 4
#define FE_OVERFLOW 8
#define FE_UNDERFLOW 16
#define FE_INEXACT 32
#endif

#ifndef __cpp_lib_bit_cast
namespace std {
template <class To, class From>
constexpr To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, from);
}
}  // namespace std
#endif

#ifndef __cpp_lib_ranges
namespace std::ranges {
template <class Range, class Output>
void copy(const Range& range, Output output) {
    std::copy(std::begin(range), std::end(range), output);
}
template <class Range, class Value>
void fill(Range&& range, const Value& value) {
    std::fill(std::begin(range), std::end(range), value);
}
template <class Range, class Value>
auto find(Range&& range, const Value& value) {
    return std::find(std::begin(range), std::end(range), value);
}
template <class First, class Second>
auto mismatch(const First& first, const Second& second) {
    struct Result {
        decltype(std::begin(first)) in1;
        decltype(std::begin(second)) in2;
    };
    const auto [in1, in2] =
        std::mismatch(std::begin(first), std::end(first), std::begin(second), std::end(second));
    return Result{in1, in2};
}
}  // namespace std::ranges
#endif
#endif
