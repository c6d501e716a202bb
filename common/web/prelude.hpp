// Included before each file that is compiled for WebAssembly: what the lessons and libraries
// use and Emscripten's standard library, libc++ 14, lacks.
#pragma once

#ifdef __cplusplus
#include <cfenv>
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
#endif
