// Chapter 16, kernels: products of several tokens, in register tiles. Only
// integer_products.cpp includes this file.
#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "chapters/16_quantization/kernels/quantized_inputs.hpp"
#include "chapters/16_quantization/kernels/unpack_blocks.hpp"
#include "common/tensors/matmul.hpp"

#include <hwy/cache_control.h>

namespace llm {
namespace {

// Registers of 512 or 256 bits. A lane holds four values of one row, or their sum of products.
constexpr hn::CappedTag<std::int32_t, 16> wide_integers;
constexpr hn::Rebind<Real, decltype(wide_integers)> wide_floats;
using WideIntegers = hn::Vec<decltype(wide_integers)>;
using WideFloats = hn::Vec<decltype(wide_floats)>;
constexpr std::size_t num_lanes = hn::MaxLanes(wide_integers);

WideIntegers add_products(WideIntegers weights, WideIntegers inputs, WideIntegers sums) {
#if HWY_MAX_BYTES >= 64
    return WideIntegers{_mm512_dpbusd_epi32(sums.raw, weights.raw, inputs.raw)};
#elif defined(__AVX512VNNI__)
    return WideIntegers{_mm256_dpbusd_epi32(sums.raw, weights.raw, inputs.raw)};
#else
    return WideIntegers{_mm256_dpbusd_avx_epi32(sums.raw, weights.raw, inputs.raw)};
#endif
}

// Up to 256 weights of 16 (or 8) rows, one row per lane: weights 0 to 3 of each row, then
// weights 4 to 7 of each row, and so on.
struct PackedRows {
    alignas(64) std::array<std::uint8_t, 256 * num_lanes> values;
    alignas(64) std::array<Real, 16 * num_lanes> scales, mins;
};

// Unpacks the blocks of one row. The scales, and mins that do not follow from them, get their
// lane; of the values, each 16 are stored where transpose_in_place expects them. Meanwhile, the
// blocks that are `next` bytes further on are prefetched.
template <class Block>
void unpack(std::span<const Block> blocks, std::size_t lane, PackedRows& packed,
            std::size_t next) {
    using Traits = BlockTraits<Block>;
    Real *scales = &packed.scales[lane], *mins = &packed.mins[lane];
    std::uint8_t* values = &packed.values[16 * (lane % 4 * (num_lanes / 4) + lane / 4)];
    for (const Block& block : blocks) {
        for (std::size_t i = 0; i < sizeof block; i += 64)
            hwy::Prefetch(reinterpret_cast<const std::byte*>(&block) + next + i);
        const GroupScales<Block> weights = unpack_scales(block);
        for (std::size_t g = 0; g < weights.num_groups; ++g) {
            *std::exchange(scales, scales + num_lanes) = weights.scales[g];
            if constexpr (!has_offset<Block>)
                *std::exchange(mins, mins + num_lanes) = weights.mins[g];
        }
        for (std::size_t part = 0; part < Traits::block_size / Traits::part_size; ++part)
            for (const Bytes sixteen : unpack_part(block, part))
                hn::Store(sixteen, bytes, std::exchange(values, values + 16 * num_lanes));
    }
}

// Four registers hold 16 weights of each row: register k those of rows k, k + 4, k + 8 and
// k + 12, in a block of four lanes each. Lane r is to hold four weights of row r, so each block
// is a 4 x 4 matrix to be transposed. Interleave lanes, then pairs of lanes.
void transpose_in_place(std::uint8_t* values) {
    const hn::RepartitionToWide<decltype(wide_integers)> pairs;
    auto* lanes = reinterpret_cast<std::int32_t*>(values);
    const auto row = [&](std::size_t k) {
        return hn::Load(wide_integers, lanes + k * num_lanes);
    };
    const auto lower = [&](WideIntegers a, WideIntegers b) {
        return hn::BitCast(pairs, hn::InterleaveLower(wide_integers, a, b));
    };
    const auto upper = [&](WideIntegers a, WideIntegers b) {
        return hn::BitCast(pairs, hn::InterleaveUpper(wide_integers, a, b));
    };
    const auto lower01 = lower(row(0), row(1)), lower23 = lower(row(2), row(3));
    const auto upper01 = upper(row(0), row(1)), upper23 = upper(row(2), row(3));
    const auto store = [&](auto weights, std::size_t k) {
        hn::Store(hn::BitCast(wide_integers, weights), wide_integers, lanes + k * num_lanes);
    };
    store(hn::InterleaveLower(pairs, lower01, lower23), 0);
    store(hn::InterleaveUpper(pairs, lower01, lower23), 1);
    store(hn::InterleaveLower(pairs, upper01, upper23), 2);
    store(hn::InterleaveUpper(pairs, upper01, upper23), 3);
}

// The products of a group of weights and some tokens. Each register of weights is loaded once
// for all tokens.
template <std::size_t group_size, std::size_t num_tokens>
HWY_INLINE std::array<WideIntegers, num_tokens> multiply_group(
    const PackedRows& rows, std::size_t group,
    const std::array<QuantizedInputs, num_tokens>& tokens) {
    std::array<WideIntegers, num_tokens> products;
    products.fill(hn::Zero(wide_integers));
    const std::size_t begin = group * group_size;
    const auto* four_weights =
        reinterpret_cast<const std::int32_t*>(&rows.values[begin * num_lanes]);
    for (std::size_t i = 0; i < group_size; i += 4, four_weights += num_lanes) {
        const WideIntegers weights = hn::Load(wide_integers, four_weights);
        for (std::size_t t = 0; t < num_tokens; ++t) {
            std::int32_t four_inputs;
            std::memcpy(&four_inputs, tokens[t].values + begin + i, 4);
            products[t] =
                add_products(weights, hn::Set(wide_integers, four_inputs), products[t]);
        }
    }
    return products;
}

// The mins of a group: those that are packed, or those that follow from the scales.
template <class Block>
HWY_INLINE WideFloats mins_of(const PackedRows& rows, std::size_t group, WideFloats scales) {
    if constexpr (has_offset<Block>)
        return hn::Mul(scales, hn::Set(wide_floats, offset_of<Block>));
    else
        return hn::Load(wide_floats, &rows.mins[group * num_lanes]);
}

// Adds the products of the packed rows and some tokens to the outputs: a register tile.
template <class Block, std::size_t num_tokens>
void multiply_tile(const PackedRows& rows, std::size_t size,
                   const std::array<QuantizedInputs, num_tokens>& tokens,
                   const std::array<Real*, num_tokens>& outputs) {
    constexpr std::size_t group_size = BlockTraits<Block>::group_size;
    std::array<WideFloats, num_tokens> sums;
    for (std::size_t t = 0; t < num_tokens; ++t) sums[t] = hn::LoadU(wide_floats, outputs[t]);
    for (std::size_t g = 0; g < size / group_size; ++g) {
        const auto products = multiply_group<group_size>(rows, g, tokens);
        const WideFloats scales = hn::Load(wide_floats, &rows.scales[g * num_lanes]);
        const WideFloats mins = mins_of<Block>(rows, g, scales);
        for (std::size_t t = 0; t < num_tokens; ++t) {
            const auto [input_scales, input_sums] = tokens[t].groups;
            const WideFloats scale = hn::Mul(scales, hn::Set(wide_floats, input_scales[g]));
            sums[t] = hn::MulAdd(hn::ConvertTo(wide_floats, products[t]), scale, sums[t]);
            sums[t] = hn::NegMulAdd(mins, hn::Set(wide_floats, input_sums[g]), sums[t]);
        }
    }
    for (std::size_t t = 0; t < num_tokens; ++t) hn::StoreU(sums[t], wide_floats, outputs[t]);
}

// Some weights of some rows.
struct PartOfRows {
    std::size_t first_row, begin, size;
};

// multiply_tile for tokens n to n + num_tokens - 1.
template <std::size_t num_tokens, class Block>
void multiply_tokens(const Product<Block>& product, const PackedRows& rows, PartOfRows part,
                     std::size_t n) {
    std::array<QuantizedInputs, num_tokens> tokens;
    std::array<Real*, num_tokens> outputs;
    for (std::size_t t = 0; t < num_tokens; ++t) {
        tokens[t] = product.token(n + t, part.begin);
        outputs[t] = &product.outputs[n + t][part.first_row];
    }
    multiply_tile<Block>(rows, part.size, tokens, outputs);
}

// Packs a part of 16 (or 8) rows and multiplies it by all tokens, up to four at a time.
template <class Block>
void multiply_part(const Product<Block>& product, PartOfRows part, PackedRows& packed) {
    constexpr std::size_t block_size = BlockTraits<Block>::block_size;
    const bool is_last = part.first_row + 2 * num_lanes > product.outputs.num_columns;
    const std::size_t next = is_last ? 0 : num_lanes * product.row_size();
    for (std::size_t lane = 0; lane < num_lanes; ++lane)
        unpack(std::span(product.row(part.first_row + lane) + part.begin / block_size,
                         part.size / block_size),
               lane, packed, next);
    for (std::size_t i = 0; i < part.size; i += 16)
        transpose_in_place(&packed.values[i * num_lanes]);

    constexpr std::array multiply = {multiply_tokens<1, Block>, multiply_tokens<2, Block>,
                                     multiply_tokens<3, Block>, multiply_tokens<4, Block>};
    const std::size_t num_tokens = product.outputs.num_rows;
    for (std::size_t n = 0; n < num_tokens; n += multiply.size())
        multiply[std::min(multiply.size(), num_tokens - n) - 1](product, packed, part, n);
}

// Several tokens: 16 (or 8) rows are packed once for all of them. Returns the number of rows
// that it has multiplied; less than 16 (or 8) remain.
template <class Block>
std::size_t multiply_tiles(const Product<Block>& product) {
    const auto [rows, in_features, inputs, outputs, update] = product;
    PackedRows packed;
    std::size_t row = 0;
    for (; row + num_lanes <= outputs.num_columns; row += num_lanes) {
        for (std::size_t n = 0; n < outputs.num_rows && update == Update::overwrite; ++n)
            std::ranges::fill(outputs[n].subspan(row, num_lanes), Real(0));
        for (std::size_t begin = 0; begin < in_features; begin += 256)
            multiply_part(
                product, {row, begin, std::min<std::size_t>(256, in_features - begin)}, packed);
    }
    return row;
}

}  // namespace
}  // namespace llm
