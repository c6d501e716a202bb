#include "chapters/16_quantization/quantizers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/tensors/shape.hpp"

namespace llm {
namespace {

std::uint8_t in_one_byte(int low_half, int high_half) {
    return static_cast<std::uint8_t>(low_half | high_half << 4);
}

template <class Value>
void store(const Value& value, std::span<std::byte> row, std::size_t index) {
    std::memcpy(&row[index * sizeof value], &value, sizeof value);
}

// Applies the quantizer of a block to all blocks of a row.
template <std::size_t size, class Block>
void quantize_blocks(std::span<const Real> weights, std::span<std::byte> row,
                     Block (*quantize)(std::span<const Real, size>)) {
    for (std::size_t i = 0; i < weights.size() / size; ++i)
        store(quantize(weights.subspan(i * size).template first<size>()), row, i);
}

void check_weights(DType dtype, std::span<const Real> weights) {
    for (const Real weight : weights)
        require(std::isfinite(weight), "quantize: a row of {} weights holds inf or NaN",
                weights.size());

    // Every scale of a block is at most its largest weight divided by 7.5.
    const bool has_half = dtype != DType::float32 && dtype != DType::bfloat16;
    const Real limit = dtype == DType::float16 ? 65504 : 7 * 65504;
    require(!has_half || weights.empty() || std::abs(largest_weight(weights)) <= limit,
            "quantize: a row of {} weights has one that is too large for {}", weights.size(),
            to_text(dtype));
}

}  // namespace

Real largest_weight(std::span<const Real> weights) {
    return *std::max_element(weights.begin(), weights.end(),
                             [](Real a, Real b) { return std::abs(a) < std::abs(b); });
}

Real inverse_of(Real scale) { return static_cast<Real>(Half(scale)) == 0 ? 0 : 1 / scale; }

BlockQ8_0 quantize_q8_0(std::span<const Real, 32> weights) {
    const Real scale = std::abs(largest_weight(weights)) / 127;
    const Real inverse = inverse_of(scale);
    BlockQ8_0 block{Half(scale), {}};
    for (std::size_t i = 0; i < 32; ++i)
        block.values[i] = static_cast<std::int8_t>(std::round(weights[i] * inverse));
    return block;
}

BlockQ4_0 quantize_q4_0(std::span<const Real, 32> weights) {
    // The weight with the largest magnitude becomes -8, whatever its sign.
    const Real scale = largest_weight(weights) / -8;
    const Real inverse = inverse_of(scale);
    BlockQ4_0 block{Half(scale), {}};
    const auto value = [&](std::size_t i) {  // from 0 to 15
        return std::min(15, static_cast<int>(weights[i] * inverse + Real(8.5)));
    };
    for (std::size_t i = 0; i < 16; ++i) block.values[i] = in_one_byte(value(i), value(16 + i));
    return block;
}

BlockQ5_0 quantize_q5_0(std::span<const Real, 32> weights) {
    const Real scale = largest_weight(weights) / -16;
    const Real inverse = inverse_of(scale);
    BlockQ5_0 block{Half(scale), {}, {}};
    std::array<int, 32> values;  // from 0 to 31
    for (std::size_t i = 0; i < 32; ++i)
        values[i] = std::min(31, static_cast<int>(weights[i] * inverse + Real(16.5)));
    for (std::size_t i = 0; i < 16; ++i)
        block.values[i] = in_one_byte(values[i] & 15, values[16 + i] & 15);
    for (std::size_t i = 0; i < 32; ++i)
        block.high_bits[i / 8] |= static_cast<std::uint8_t>(values[i] >> 4 << (i % 8));
    return block;
}

void quantize_row(DType dtype, std::span<const Real> weights, std::span<std::byte> row) {
    require(row.size() == bytes_per_row(dtype, weights.size()),
            "quantize: {} weights of {} do not fill {} bytes", weights.size(), to_text(dtype),
            row.size());
    check_weights(dtype, weights);
    switch (dtype) {
        case DType::float32:
            for (std::size_t i = 0; i < weights.size(); ++i)
                store(static_cast<float>(weights[i]), row, i);
            return;
        case DType::float16:
            for (std::size_t i = 0; i < weights.size(); ++i) store(Half(weights[i]), row, i);
            return;
        case DType::bfloat16:
            for (std::size_t i = 0; i < weights.size(); ++i)
                store(to_bfloat16(weights[i]), row, i);
            return;
        case DType::q8_0:
            return quantize_blocks(weights, row, quantize_q8_0);
        case DType::q4_0:
            return quantize_blocks(weights, row, quantize_q4_0);
        case DType::q5_0:
            return quantize_blocks(weights, row, quantize_q5_0);
        case DType::q4_k:
            return quantize_blocks(weights, row, quantize_q4_k);
        case DType::q6_k:
            return quantize_blocks(weights, row, quantize_q6_k);
    }
}

DType stored_dtype(DType wanted, std::size_t in_features) {
    if (in_features % block_size(wanted) == 0) return wanted;
    if (wanted == DType::q4_k && in_features % 32 == 0) return DType::q5_0;
    if (wanted == DType::q6_k && in_features % 32 == 0) return DType::q8_0;
    return DType::float16;
}

}  // namespace llm
