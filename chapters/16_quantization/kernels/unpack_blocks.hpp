// Chapter 16, kernels: the weights of interleaved blocks as integers in vector registers, one
// row per lane. Only integer_products.cpp includes this file. (block_types.cpp has
// dequantize_row, which unpacks blocks to floats.)
#pragma once

#include "chapters/16_quantization/block_types.hpp"
#include "chapters/16_quantization/kernels/row_lanes.hpp"

namespace llm {
namespace {

// The same block of as many rows as a register has lanes (interleave_rows): what stands at some
// offset in a block follows for all rows.
template <class Block>
struct InterleavedBlocks {
    const std::byte* bytes = nullptr;

    Integers word(std::size_t offset) const {
        return hn::LoadU(integers, reinterpret_cast<const std::int32_t*>(at(offset)));
    }
    Floats half(std::size_t offset) const {
        constexpr hn::Rebind<hwy::float16_t, decltype(floats)> halves;
        return hn::PromoteTo(
            floats, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(at(offset))));
    }
    const std::byte* at(std::size_t offset) const { return bytes + num_lanes * offset; }
};

// Lanes of four bytes.
HWY_INLINE Integers low_halves(Integers bytes) {
    return hn::And(bytes, hn::Set(integers, 0x0F0F0F0F));
}
HWY_INLINE Integers high_halves(Integers bytes) { return low_halves(hn::ShiftRight<4>(bytes)); }
// Byte i of each lane, with and without a sign.
HWY_INLINE Floats signed_byte(Integers bytes, std::size_t i) {
    return hn::ConvertTo(
        floats, hn::ShiftRight<24>(hn::ShiftLeftSame(bytes, static_cast<int>(24 - 8 * i))));
}
HWY_INLINE Floats unsigned_byte(Integers bytes, std::size_t i) {
    return hn::ConvertTo(floats, hn::And(hn::ShiftRightSame(bytes, static_cast<int>(8 * i)),
                                         hn::Set(integers, 255)));
}

// Each specialization unpacks one type. A weight of group g is scale(g) * value, or, with an
// offset, scale(g) * (value - offset), or scale(g) * value - min(g). A block is unpacked in
// parts, of weights whose bits are stored together; register i has weights 4i to 4i + 3 of the
// part. `largest` is the largest magnitude of a value.
template <class Block>
struct Unpacker;

// 32 weights with one scale.
template <class Block>
struct OneScale {
    static constexpr std::size_t block_size = 32, part_size = 32, group_size = 32;
    static constexpr bool has_mins = false;
    InterleavedBlocks<Block> blocks;

    HWY_INLINE Floats scale(std::size_t) const { return blocks.half(offsetof(Block, scale)); }
};

template <>
struct Unpacker<BlockQ8_0> : OneScale<BlockQ8_0> {
    static constexpr int largest = signed_weights ? largest_with_sign : 255,
                         offset = signed_weights ? 0 : 128;

    HWY_INLINE std::array<Integers, 8> part(std::size_t) const {
        std::array<Integers, 8> weights;
        for (std::size_t i = 0; i < 8; ++i) {
            weights[i] = blocks.word(offsetof(BlockQ8_0, values) + 4 * i);
            // 128 added to a signed byte changes its highest bit.
            if constexpr (!signed_weights)
                weights[i] = hn::Xor(weights[i],
                                     hn::Set(integers, static_cast<std::int32_t>(0x80808080)));
        }
        return weights;
    }
};

template <>
struct Unpacker<BlockQ4_0> : OneScale<BlockQ4_0> {
    static constexpr int largest = 15, offset = 8;

    HWY_INLINE std::array<Integers, 8> part(std::size_t) const {
        std::array<Integers, 8> weights;
        for (std::size_t i = 0; i < 4; ++i) {
            const Integers both = blocks.word(offsetof(BlockQ4_0, values) + 4 * i);
            weights[i] = low_halves(both);
            weights[4 + i] = high_halves(both);
        }
        return weights;
    }
};

template <>
struct Unpacker<BlockQ5_0> : OneScale<BlockQ5_0> {
    static constexpr int largest = 31, offset = 16;

    HWY_INLINE std::array<Integers, 8> part(std::size_t) const {
        const Integers high_bits = blocks.word(offsetof(BlockQ5_0, high_bits));
        // Bits 4i to 4i + 3 become bit 4 of four bytes: the product copies them four times, at
        // distances of 7 bits.
        const auto fifth_bits = [&](std::size_t i) {
            const Integers four = hn::And(
                hn::ShiftRightSame(high_bits, static_cast<int>(4 * i)), hn::Set(integers, 15));
            const Integers spread = hn::Mul(four, hn::Set(integers, 0x00204081));
            return hn::ShiftLeft<4>(hn::And(spread, hn::Set(integers, 0x01010101)));
        };
        std::array<Integers, 8> weights;
        for (std::size_t i = 0; i < 4; ++i) {
            const Integers both = blocks.word(offsetof(BlockQ5_0, values) + 4 * i);
            weights[i] = hn::Or(low_halves(both), fifth_bits(i));
            weights[4 + i] = hn::Or(high_halves(both), fifth_bits(4 + i));
        }
        return weights;
    }
};

template <>
struct Unpacker<BlockQ4_K> {
    static constexpr std::size_t block_size = 256, part_size = 64, group_size = 32;
    static constexpr int largest = 15, offset = 0;
    static constexpr bool has_mins = true;
    InterleavedBlocks<BlockQ4_K> blocks;

    // As unpack_scale_and_min (block_types.hpp).
    HWY_INLINE Floats scale(std::size_t g) const {
        return hn::Mul(blocks.half(offsetof(BlockQ4_K, scale)),
                       unsigned_byte(six_bits(g, 0), g % 4));
    }
    HWY_INLINE Floats min(std::size_t g) const {
        return hn::Mul(blocks.half(offsetof(BlockQ4_K, min_scale)),
                       unsigned_byte(six_bits(g, 1), g % 4));
    }
    HWY_INLINE std::array<Integers, 16> part(std::size_t p) const {
        std::array<Integers, 16> weights;
        for (std::size_t i = 0; i < 8; ++i) {
            const Integers both = blocks.word(offsetof(BlockQ4_K, values) + 32 * p + 4 * i);
            weights[i] = low_halves(both);
            weights[8 + i] = high_halves(both);
        }
        return weights;
    }

 private:
    // The scales (word 0) or the mins (word 1) of group g and its three neighbors.
    HWY_INLINE Integers six_bits(std::size_t g, std::size_t word) const {
        constexpr std::size_t packed = offsetof(BlockQ4_K, scales_and_mins);
        const Integers first = blocks.word(packed + 4 * word);
        if (g < 4) return hn::And(first, hn::Set(integers, 0x3F3F3F3F));
        const Integers both = blocks.word(packed + 8);
        return hn::Or(word == 0 ? low_halves(both) : high_halves(both),
                      hn::And(hn::ShiftRight<2>(first), hn::Set(integers, 0x30303030)));
    }
};

template <>
struct Unpacker<BlockQ6_K> {
    static constexpr std::size_t block_size = 256, part_size = 64, group_size = 16;
    static constexpr int largest = 63, offset = 32;
    static constexpr bool has_mins = false;
    InterleavedBlocks<BlockQ6_K> blocks;

    HWY_INLINE Floats scale(std::size_t g) const {
        const Integers four = blocks.word(offsetof(BlockQ6_K, scales) + g / 4 * 4);
        return hn::Mul(blocks.half(offsetof(BlockQ6_K, scale)), signed_byte(four, g % 4));
    }
    // Parts 0 and 1 are in the low and high halves of the first 64 bytes, 2 and 3 in those of
    // the next ones. Each byte of high_bits has the two upper bits of four weights.
    HWY_INLINE std::array<Integers, 16> part(std::size_t p) const {
        const std::size_t low = offsetof(BlockQ6_K, low_bits) + p / 2 * 64,
                          high = offsetof(BlockQ6_K, high_bits) + p / 2 * 32;
        std::array<Integers, 16> weights;
        for (std::size_t i = 0; i < 16; ++i) {
            const Integers four_bits = blocks.word(low + 4 * i);
            const int shift = static_cast<int>(4 * (p % 2) + 2 * (i / 8));
            const Integers two_bits =
                hn::And(hn::ShiftRightSame(blocks.word(high + i % 8 * 4), shift),
                        hn::Set(integers, 0x03030303));
            weights[i] = hn::Or(p % 2 == 0 ? low_halves(four_bits) : high_halves(four_bits),
                                hn::ShiftLeft<4>(two_bits));
        }
        return weights;
    }
};

}  // namespace
}  // namespace llm
