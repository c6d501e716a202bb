// Chapter 16, file 2 of 4: weights stored in blocks that share a scale: the quantized types of
// GGUF files, byte for byte. dequantize_row (declared in dtype.hpp) unpacks them to floats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/tensors/dtype.hpp"
#include "common/tensors/half.hpp"
#include "common/tensors/real.hpp"

namespace llm {

// 32 weights: weight i is scale * values[i].
struct BlockQ8_0 {
    Half scale;
    std::array<std::int8_t, 32> values;
};
static_assert(sizeof(BlockQ8_0) == 34);

// 32 weights of 4 bits, the low and high halves of 16 bytes: weight i of the first 16 is
// scale * (low half of values[i] - 8), weight 16 + i is scale * (high half of values[i] - 8).
struct BlockQ4_0 {
    Half scale;
    std::array<std::uint8_t, 16> values;
};
static_assert(sizeof(BlockQ4_0) == 18);

// 32 weights of 5 bits, minus 16. The lower four bits are stored as in BlockQ4_0; bit i of
// high_bits is the fifth bit of weight i.
struct BlockQ5_0 {
    Half scale;
    std::array<std::uint8_t, 4> high_bits;
    std::array<std::uint8_t, 16> values;
};
static_assert(sizeof(BlockQ5_0) == 22);

// 32 weights of 4 bits in floating point, of gpt-oss: the scale, 2^(scale - 127), and
// the halves of 16 bytes in the order of BlockQ4_0. Source: "OCP Microscaling Formats" (2023),
// section 5.3.
struct BlockMXFP4 {
    std::uint8_t scale;
    std::array<std::uint8_t, 16> values;
};
static_assert(sizeof(BlockMXFP4) == 17);
// The weight of each code before it is multiplied by the scale.
inline constexpr std::array<Real, 16> mxfp4_values = {
    0, Real(0.5), 1, Real(1.5), 2, 3, 4, 6, 0, Real(-0.5), -1, Real(-1.5), -2, -3, -4, -6};

// 256 weights of 4 bits in 8 groups of 32. A weight of group g is
// scale * scales[g] * value - min_scale * mins[g]. The scales and mins have 6 bits each and are
// packed into 12 bytes.
struct BlockQ4_K {
    Half scale;
    Half min_scale;
    std::array<std::uint8_t, 12> scales_and_mins;
    std::array<std::uint8_t, 128> values;
};
static_assert(sizeof(BlockQ4_K) == 144);

// 256 weights of 6 bits, minus 32, in 16 groups of 16. A weight of group g is
// scale * scales[g] * value. The lower four and the upper two bits of the values are stored
// apart.
struct BlockQ6_K {
    std::array<std::uint8_t, 128> low_bits;
    std::array<std::uint8_t, 64> high_bits;
    std::array<std::int8_t, 16> scales;
    Half scale;
};
static_assert(sizeof(BlockQ6_K) == 210);

// The scale and the min of group g in 12 bytes. Groups 0 to 3 use the lower six bits of bytes 0
// to 3 (scales) and 4 to 7 (mins). The upper two bits of these bytes are the upper bits of
// groups 4 to 7, whose lower four bits are the halves of bytes 8 to 11.
struct ScaleAndMin {
    int scale = 0, min = 0;
};
ScaleAndMin unpack_scale_and_min(const std::array<std::uint8_t, 12>& bytes, std::size_t group);

}  // namespace llm
