#include "common/tensors/float8.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace llm {
namespace {

// ±1.m · 2^(e - bias) for the exponent e and the mantissa m of a byte, or, if e is 0,
// ±0.m · 2^(1 - bias).
float value_of(unsigned byte, int mantissa_bits, int bias) {
    const int magnitude_bits = int(byte & 0x7f);
    const int exponent = magnitude_bits >> mantissa_bits;
    const int fraction = magnitude_bits - (exponent << mantissa_bits);
    const int implicit_one = exponent > 0 ? 1 << mantissa_bits : 0;
    const float magnitude = std::ldexp(float(implicit_one + fraction),
                                       std::max(exponent, 1) - bias - mantissa_bits);
    return byte < 0x80 ? magnitude : -magnitude;
}

}  // namespace

const Float8Values& e4m3_values() {
    static const Float8Values values = [] {
        Float8Values all{};
        for (unsigned byte = 0; byte < 256; ++byte) all[byte] = value_of(byte, 3, 7);
        // Only the largest bit pattern is not finite.
        all[0x7f] = all[0xff] = std::numeric_limits<float>::quiet_NaN();
        return all;
    }();
    return values;
}

const Float8Values& e5m2_values() {
    static const Float8Values values = [] {
        Float8Values all{};
        for (unsigned byte = 0; byte < 256; ++byte) all[byte] = value_of(byte, 2, 15);
        // As in IEEE 754, the largest exponent means infinity, or NaN if the mantissa is not 0.
        for (const unsigned sign : {0x00u, 0x80u}) {
            for (unsigned byte = 0x7d; byte < 0x80; ++byte)
                all[sign + byte] = std::numeric_limits<float>::quiet_NaN();
            all[sign + 0x7c] = (sign ? -1 : 1) * std::numeric_limits<float>::infinity();
        }
        return all;
    }();
    return values;
}

}  // namespace llm
