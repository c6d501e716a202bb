// Functions of each element or each row of a tensor, as loops that the compiler vectorizes: the
// exponential function, sums and maxima. (xtensor evaluates such expressions one element at a
// time, and the C library's exp is a call for each number.)
#pragma once

#include <cmath>
#include <cstring>
#include <span>

#include "common/tensors/tensor.hpp"

namespace llm {

// e^x with an error below 2 units in the last place, for float: a polynomial instead of a call
// of the C library. It follows std::exp for results that are too large (infinity), too small
// (subnormal or 0), and for NaN. Source: Cephes (Moshier), expf.
inline float vectorizable_exp(float x) {
    // Beyond these bounds the result is infinity or 0. Comparisons with NaN are false.
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;

    // e^x = 2^n e^r, with n = x / ln 2, rounded, and |r| <= ln 2 / 2. Adding 1.5 · 2^23 rounds
    // to an integer, which is then in the lowest bits. ln 2 is subtracted in two parts, of
    // which n times the first is exact.
    const float magic = 12582912.0f;
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;

    // Multiply by 2^n as two factors, since 2^n itself may overflow or be subnormal. A float
    // with these bits is a power of two.
    std::int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    const std::int32_t exponent = (bits & 0x7FFFFF) - 0x400000, half = exponent >> 1;
    const std::int32_t first_bits = (half + 127) << 23, second_bits = (exponent - half + 127)
                                                                      << 23;
    float first, second;
    std::memcpy(&first, &first_bits, sizeof first);
    std::memcpy(&second, &second_bits, sizeof second);
    return p * first * second;
}
inline double vectorizable_exp(double x) { return std::exp(x); }

// e^x of each element.
Matrix elementwise_exp(Matrix x);  // (N, M) -> (N, M)

// The largest element of each row, or the lowest finite number if the row has no larger one;
// and the sum of each row. PyTorch: amax and sum with dim=1, keepdim=True.
Matrix row_max(const Matrix& rows);  // (N, M) -> (N, 1)
Matrix row_sum(const Matrix& rows);  // (N, M) -> (N, 1)

// The sum of the products of the elements. The spans have equal lengths.
Real dot_product(std::span<const Real> a, std::span<const Real> b);

// result[i] = function(x[i]), as one loop. `function` is a constant, so that it is inlined.
template <Real (*function)(Real)>
void apply_elementwise(std::span<const Real> x, std::span<Real> result) {
    for (std::size_t i = 0; i < x.size(); ++i) result[i] = function(x[i]);
}

}  // namespace llm
