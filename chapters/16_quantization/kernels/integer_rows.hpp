// Chapter 16, kernels: products of a row and one token, with registers of 256 bits, which
// hold all 32 weights of a block of q8_0, q4_0 or q5_0. Only integer_products.cpp includes this
// file.
#pragma once

#include "chapters/16_quantization/kernels/quantized_inputs.hpp"
#include "chapters/16_quantization/kernels/unpack_blocks.hpp"

namespace llm {
namespace {

constexpr hn::FixedTag<std::uint8_t, 32> block_bytes;
constexpr hn::FixedTag<std::int8_t, 32> block_inputs;
constexpr hn::FixedTag<std::int32_t, 8> block_integers;
constexpr hn::FixedTag<Real, 8> block_floats;
using BlockBytes = hn::Vec<decltype(block_bytes)>;
using BlockIntegers = hn::Vec<decltype(block_integers)>;

HWY_INLINE BlockBytes unpack_block(const BlockQ8_0& block) {
    const auto* values = reinterpret_cast<const std::uint8_t*>(block.values.data());
    return hn::Add(hn::LoadU(block_bytes, values), hn::Set(block_bytes, 128));
}

// Loads 16 bytes into both halves of a register: their lower and their upper four bits.
HWY_INLINE BlockBytes unpack_halves(const std::uint8_t* values) {
    constexpr hn::Repartition<std::uint32_t, decltype(block_bytes)> words;
    alignas(32) static constexpr std::array<std::uint32_t, 8> shifts = {0, 0, 0, 0, 4, 4, 4, 4};
    const auto twice = hn::BitCast(words, hn::LoadDup128(block_bytes, values));
    const auto shifted = hn::Shr(twice, hn::Load(words, shifts.data()));
    return hn::And(hn::BitCast(block_bytes, shifted), hn::Set(block_bytes, 15));
}
HWY_INLINE BlockBytes unpack_block(const BlockQ4_0& block) {
    return unpack_halves(block.values.data());
}
HWY_INLINE BlockBytes unpack_block(const BlockQ5_0& block) {
    // LoadMaskBits selects the lanes whose bits are set. It may read 8 bytes.
    std::array<std::uint8_t, 8> bits{};
    std::copy(block.high_bits.begin(), block.high_bits.end(), bits.begin());
    const auto mask = hn::LoadMaskBits(block_bytes, bits.data());
    return hn::Or(unpack_halves(block.values.data()),
                  hn::IfThenElseZero(mask, hn::Set(block_bytes, 16)));
}

// The sums of the products of four weights and inputs each.
HWY_INLINE BlockIntegers products_of_block(BlockBytes weights, const std::int8_t* inputs) {
    const auto values = hn::LoadU(block_inputs, inputs);
#ifdef __AVX512VNNI__
    return BlockIntegers{_mm256_dpbusd_epi32(_mm256_setzero_si256(), weights.raw, values.raw)};
#else
    return BlockIntegers{
        _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), weights.raw, values.raw)};
#endif
}

// The product of one row and one token.
template <class Block>
Real multiply_blocks(const Block* blocks, std::size_t num_blocks,
                     const QuantizedInputs& token) {
    auto sums = hn::Zero(block_floats);
    Real sum_of_inputs = 0;  // with the scales of the weights
    for (std::size_t b = 0; b < num_blocks; ++b) {
        const Real weight_scale = to_float(blocks[b].scale);
        const BlockIntegers products =
            products_of_block(unpack_block(blocks[b]), token.values + 32 * b);
        const Real scale = weight_scale * token.groups.scales[b];
        sums = hn::MulAdd(hn::ConvertTo(block_floats, products), hn::Set(block_floats, scale),
                          sums);
        sum_of_inputs += weight_scale * token.groups.sums[b];
    }
    return hn::GetLane(hn::SumOfLanes(block_floats, sums)) - offset_of<Block> * sum_of_inputs;
}

}  // namespace
}  // namespace llm
