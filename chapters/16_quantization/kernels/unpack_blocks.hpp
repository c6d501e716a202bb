// Chapter 16, kernels: blocks of weights in vector registers. Only integer_products.cpp
// includes this file, which is compiled for the machine it is built on.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "chapters/16_quantization/block_types.hpp"

// Without vector instructions, Highway emulates them (EMU128). It avoids this with GCC before
// 12.3, because of a bug in operations that are not used here. Registers of Arm's SVE cannot be
// elements of an array; NEON is used instead.
#define HWY_BROKEN_EMU128 0
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

namespace llm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Registers of 128 bits: the values of 16 weights or inputs, or four sums of their products.
constexpr hn::FixedTag<std::uint8_t, 16> bytes;
constexpr hn::FixedTag<std::int8_t, 16> signed_bytes;
constexpr hn::FixedTag<std::int32_t, 4> integers;
constexpr hn::FixedTag<Real, 4> four_floats;
using Bytes = hn::Vec<decltype(bytes)>;
using SignedBytes = hn::Vec<decltype(signed_bytes)>;
using Integers = hn::Vec<decltype(integers)>;
using FourFloats = hn::Vec<decltype(four_floats)>;

// A block has groups of weights with the same scale. It is unpacked in parts, of weights whose
// bits are stored together. Numbers of weights:
template <class Block>
struct BlockTraits {  // q8_0, q4_0 and q5_0
    static constexpr std::size_t block_size = 32, group_size = 32, part_size = 32;
};
template <>
struct BlockTraits<BlockQ4_K> {
    static constexpr std::size_t block_size = 256, group_size = 32, part_size = 64;
};
template <>
struct BlockTraits<BlockQ6_K> {
    static constexpr std::size_t block_size = 256, group_size = 16, part_size = 64;
};

// An unpacked weight of group g is scales[g] * value - mins[g]. The value has no sign.
template <class Block>
struct GroupScales {
    static constexpr std::size_t num_groups =
        BlockTraits<Block>::block_size / BlockTraits<Block>::group_size;
    std::array<Real, num_groups> scales, mins;
};
template <class Block>
using Part = std::array<Bytes, BlockTraits<Block>::part_size / 16>;

Bytes load(const std::uint8_t* values) { return hn::LoadU(bytes, values); }
Bytes low_halves(Bytes values) { return hn::And(values, hn::Set(bytes, 15)); }
Bytes high_halves(Bytes values) { return hn::ShiftRight<4>(values); }

// With one instruction, where the processor has one.
Real to_float(const Half& half) {
    constexpr hn::FixedTag<std::uint16_t, 4> bits;
    constexpr hn::FixedTag<hwy::float16_t, 4> halves;
    std::uint16_t stored;
    std::memcpy(&stored, &half, sizeof stored);
    return hn::GetLane(hn::PromoteTo(four_floats, hn::BitCast(halves, hn::Set(bits, stored))));
}

// Four integers of 8 bits, times a scale.
template <class Byte>
FourFloats scaled(const Byte* four_bytes, Real scale) {
    constexpr hn::FixedTag<Byte, 4> four;
    const Integers values = hn::PromoteTo(integers, hn::LoadU(four, four_bytes));
    return hn::Mul(hn::ConvertTo(four_floats, values), hn::Set(four_floats, scale));
}

// Weights without mins of their own: min = offset * scale. The offset makes all values
// positive.
template <class Block>
constexpr Real offset_of = 0;  // q4_k
template <>
constexpr Real offset_of<BlockQ8_0> = 128;
template <>
constexpr Real offset_of<BlockQ4_0> = 8;
template <>
constexpr Real offset_of<BlockQ5_0> = 16;
template <>
constexpr Real offset_of<BlockQ6_K> = 32;
template <class Block>
constexpr bool has_offset = offset_of<Block> != 0;

// 32 weights with one scale.
template <class Block>
GroupScales<Block> one_scale(const Block& block) {
    const Real scale = to_float(block.scale);
    return {{scale}, {offset_of<Block> * scale}};
}

HWY_INLINE GroupScales<BlockQ8_0> unpack_scales(const BlockQ8_0& block) {
    return one_scale(block);
}
HWY_INLINE Part<BlockQ8_0> unpack_part(const BlockQ8_0& block, std::size_t) {
    const auto* values = reinterpret_cast<const std::uint8_t*>(block.values.data());
    const Bytes offset = hn::Set(bytes, 128);
    return {hn::Add(load(values), offset), hn::Add(load(values + 16), offset)};
}

HWY_INLINE GroupScales<BlockQ4_0> unpack_scales(const BlockQ4_0& block) {
    return one_scale(block);
}
HWY_INLINE Part<BlockQ4_0> unpack_part(const BlockQ4_0& block, std::size_t) {
    const Bytes halves = load(block.values.data());
    return {low_halves(halves), high_halves(halves)};
}

HWY_INLINE GroupScales<BlockQ5_0> unpack_scales(const BlockQ5_0& block) {
    return one_scale(block);
}
HWY_INLINE Part<BlockQ5_0> unpack_part(const BlockQ5_0& block, std::size_t) {
    // LoadMaskBits selects the lanes whose bits are set. It may read 8 bytes.
    const auto fifth_bits = [&](std::size_t i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &block.high_bits[i], 2);
        const auto* first_byte = reinterpret_cast<const std::uint8_t*>(&bits);
        return hn::IfThenElseZero(hn::LoadMaskBits(bytes, first_byte), hn::Set(bytes, 16));
    };
    const Bytes halves = load(block.values.data());
    return {hn::Or(low_halves(halves), fifth_bits(0)),
            hn::Or(high_halves(halves), fifth_bits(2))};
}

HWY_INLINE GroupScales<BlockQ4_K> unpack_scales(const BlockQ4_K& block) {
    // As unpack_scale_and_min (block_types.hpp), for four groups at once.
    std::array<std::uint32_t, 3> words;
    std::memcpy(words.data(), block.scales_and_mins.data(), sizeof words);
    const std::array<std::uint32_t, 2> scales = {
        words[0] & 0x3F3F3F3F, (words[2] & 0x0F0F0F0F) | (words[0] >> 2 & 0x30303030)};
    const std::array<std::uint32_t, 2> mins = {
        words[1] & 0x3F3F3F3F, (words[2] >> 4 & 0x0F0F0F0F) | (words[1] >> 2 & 0x30303030)};

    const auto* scale_bytes = reinterpret_cast<const std::uint8_t*>(scales.data());
    const auto* min_bytes = reinterpret_cast<const std::uint8_t*>(mins.data());
    const Real scale = to_float(block.scale), min_scale = to_float(block.min_scale);
    GroupScales<BlockQ4_K> result;
    for (std::size_t g = 0; g < 8; g += 4) {
        hn::StoreU(scaled(scale_bytes + g, scale), four_floats, &result.scales[g]);
        hn::StoreU(scaled(min_bytes + g, min_scale), four_floats, &result.mins[g]);
    }
    return result;
}
HWY_INLINE Part<BlockQ4_K> unpack_part(const BlockQ4_K& block, std::size_t part) {
    const Bytes first = load(&block.values[32 * part]);
    const Bytes second = load(&block.values[32 * part + 16]);
    return {low_halves(first), low_halves(second), high_halves(first), high_halves(second)};
}

HWY_INLINE GroupScales<BlockQ6_K> unpack_scales(const BlockQ6_K& block) {
    const Real scale = to_float(block.scale);
    GroupScales<BlockQ6_K> result;
    for (std::size_t g = 0; g < 16; g += 4) {
        const FourFloats scales = scaled(&block.scales[g], scale);
        hn::StoreU(scales, four_floats, &result.scales[g]);
        const FourFloats mins = hn::Mul(scales, hn::Set(four_floats, offset_of<BlockQ6_K>));
        hn::StoreU(mins, four_floats, &result.mins[g]);
    }
    return result;
}
HWY_INLINE Part<BlockQ6_K> unpack_part(const BlockQ6_K& block, std::size_t part) {
    // Parts 0 and 1 are in the low and high halves of the first 64 bytes, 2 and 3 in those of
    // the next ones. Each byte of high_bits has the two upper bits of four weights.
    const std::uint8_t* low = &block.low_bits[part / 2 * 64];
    const std::uint8_t* high = &block.high_bits[part / 2 * 32];
    const Bytes upper = hn::Set(bytes, 3 << 4), high0 = load(high), high1 = load(high + 16);
    const auto join = [&](Bytes four_bits, Bytes two_bits) {
        return hn::Or(four_bits, hn::And(two_bits, upper));
    };
    if (part % 2 == 0)
        return {join(low_halves(load(low)), hn::ShiftLeft<4>(high0)),
                join(low_halves(load(low + 16)), hn::ShiftLeft<4>(high1)),
                join(low_halves(load(low + 32)), hn::ShiftLeft<2>(high0)),
                join(low_halves(load(low + 48)), hn::ShiftLeft<2>(high1))};
    return {join(high_halves(load(low)), high0), join(high_halves(load(low + 16)), high1),
            join(high_halves(load(low + 32)), hn::ShiftRight<2>(high0)),
            join(high_halves(load(low + 48)), hn::ShiftRight<2>(high1))};
}

}  // namespace
}  // namespace llm
