#include "chapters/16_quantization/block_types.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little, "stored weights are little endian");

template <class T>
T read_as(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

int low_half(std::uint8_t byte) { return byte & 15; }
int high_half(std::uint8_t byte) { return byte >> 4; }

void dequantize(float stored, Real* weight) { *weight = stored; }
void dequantize(Half stored, Real* weight) { *weight = static_cast<Real>(stored); }
void dequantize(Bfloat16 stored, Real* weight) { *weight = to_float(stored); }

void dequantize(const BlockQ8_0& block, Real* weights) {
    const auto scale = static_cast<Real>(block.scale);
    for (std::size_t i = 0; i < 32; ++i)
        weights[i] = scale * static_cast<Real>(block.values[i]);
}

void dequantize(const BlockQ4_0& block, Real* weights) {
    const auto scale = static_cast<Real>(block.scale);
    for (std::size_t i = 0; i < 16; ++i) {
        weights[i] = scale * static_cast<Real>(low_half(block.values[i]) - 8);
        weights[16 + i] = scale * static_cast<Real>(high_half(block.values[i]) - 8);
    }
}

void dequantize(const BlockQ5_0& block, Real* weights) {
    const auto scale = static_cast<Real>(block.scale);
    const auto fifth_bit = [&](std::size_t i) {
        return 16 * (block.high_bits[i / 8] >> (i % 8) & 1);
    };
    for (std::size_t i = 0; i < 16; ++i) {
        const int first = low_half(block.values[i]) + fifth_bit(i);
        const int second = high_half(block.values[i]) + fifth_bit(16 + i);
        weights[i] = scale * static_cast<Real>(first - 16);
        weights[16 + i] = scale * static_cast<Real>(second - 16);
    }
}

// A scale of 255 means NaN.
void dequantize(const BlockMXFP4& block, Real* weights) {
    const Real scale = block.scale == 255 ? std::numeric_limits<Real>::quiet_NaN()
                                          : std::ldexp(Real(1), block.scale - 127);
    for (std::size_t i = 0; i < 16; ++i) {
        weights[i] = scale * mxfp4_values[low_half(block.values[i])];
        weights[16 + i] = scale * mxfp4_values[high_half(block.values[i])];
    }
}

void dequantize(const BlockQ4_K& block, Real* weights) {
    for (std::size_t group = 0; group < 8; ++group) {
        const ScaleAndMin packed = unpack_scale_and_min(block.scales_and_mins, group);
        const Real scale = static_cast<Real>(block.scale) * static_cast<Real>(packed.scale);
        const Real min = static_cast<Real>(block.min_scale) * static_cast<Real>(packed.min);

        // Two groups share 32 bytes: the first one has their low halves.
        const std::uint8_t* values = &block.values[group / 2 * 32];
        for (std::size_t i = 0; i < 32; ++i) {
            const int value = group % 2 == 0 ? low_half(values[i]) : high_half(values[i]);
            weights[32 * group + i] = scale * static_cast<Real>(value) - min;
        }
    }
}

void dequantize(const BlockQ6_K& block, Real* weights) {
    for (std::size_t i = 0; i < 256; ++i) {
        // Each half of the block has four runs of 32 weights. Runs 0 and 1 are in the low
        // halves of 64 bytes, runs 2 and 3 in their high halves; the two upper bits of all four
        // runs share 32 bytes.
        const std::size_t half = i / 128, run = i % 128 / 32, offset = i % 32;
        const std::uint8_t low_byte = block.low_bits[64 * half + 32 * (run % 2) + offset];
        const int low = run < 2 ? low_half(low_byte) : high_half(low_byte);
        const int high = block.high_bits[32 * half + offset] >> (2 * run) & 3;

        const Real scale =
            static_cast<Real>(block.scale) * static_cast<Real>(block.scales[i / 16]);
        weights[i] = scale * static_cast<Real>(low + 16 * high - 32);
    }
}

// Block: one of the structs, or the type of a single weight.
template <class Block>
void dequantize_blocks(DType dtype, std::span<const std::byte> row, std::span<Real> weights) {
    const std::size_t num_blocks = weights.size() / block_size(dtype);
    for (std::size_t i = 0; i < num_blocks; ++i)
        dequantize(read_as<Block>(&row[i * sizeof(Block)]), &weights[i * block_size(dtype)]);
}

}  // namespace

ScaleAndMin unpack_scale_and_min(const std::array<std::uint8_t, 12>& bytes, std::size_t group) {
    if (group < 4) return {bytes[group] & 63, bytes[4 + group] & 63};
    return {low_half(bytes[4 + group]) + 16 * (bytes[group - 4] >> 6),
            high_half(bytes[4 + group]) + 16 * (bytes[group] >> 6)};
}

void dequantize_row(DType dtype, std::span<const std::byte> row, std::span<Real> weights) {
    switch (dtype) {
        case DType::float32:
            return dequantize_blocks<float>(dtype, row, weights);
        case DType::float16:
            return dequantize_blocks<Half>(dtype, row, weights);
        case DType::bfloat16:
            return dequantize_blocks<Bfloat16>(dtype, row, weights);
        case DType::q8_0:
            return dequantize_blocks<BlockQ8_0>(dtype, row, weights);
        case DType::q4_0:
            return dequantize_blocks<BlockQ4_0>(dtype, row, weights);
        case DType::q5_0:
            return dequantize_blocks<BlockQ5_0>(dtype, row, weights);
        case DType::q4_k:
            return dequantize_blocks<BlockQ4_K>(dtype, row, weights);
        case DType::q6_k:
            return dequantize_blocks<BlockQ6_K>(dtype, row, weights);
        case DType::mxfp4:
            return dequantize_blocks<BlockMXFP4>(dtype, row, weights);
    }
}

}  // namespace llm
