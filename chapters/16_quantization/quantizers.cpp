#include "chapters/16_quantization/quantizers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "chapters/15_fast/weight_matrix.hpp"
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

// The largest weight with which no scale becomes inf in float16. For blocks it is the largest
// float16 times the integer of the largest weight. A K-quant stores its scales as integers
// times a float16. Fitting makes the largest min of Q4_K (at most 63 times the float16) and the
// largest scale of Q6_K (128 times) a little larger than the weights require; hence 32 and 30.
Real largest_accepted(DType dtype) {
    constexpr Real largest_half = 65504;
    switch (dtype) {
        case DType::float32:
            return std::numeric_limits<Real>::max();
        case DType::float16:
            return largest_half;
        case DType::bfloat16:
            return to_float(Bfloat16{0x7f7f});
        case DType::q8_0:
            return 127 * largest_half;
        case DType::q4_0:
            return 8 * largest_half;
        case DType::q5_0:
            return 16 * largest_half;
        case DType::q4_k:
            return 32 * largest_half;
        case DType::q6_k:
            return 30 * 128 * largest_half;
        case DType::mxfp4:
            break;
    }
    return 0;
}

void check_weights(DType dtype, std::span<const Real> weights) {
    for (const Real weight : weights)
        require(std::isfinite(weight), "quantize: a row of {} weights holds inf or NaN",
                weights.size());
    require(weights.empty() || std::abs(largest_weight(weights)) <= largest_accepted(dtype),
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
        case DType::bfloat16:
            return kernels_of(dtype).quantize(weights, row);  // chapter 15
        case DType::float16:
            for (std::size_t i = 0; i < weights.size(); ++i) store(Half(weights[i]), row, i);
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
        case DType::mxfp4:
            require(false, "quantize: mxfp4 is only read");
    }
}

DType stored_dtype(DType wanted, std::size_t in_features) {
    if (in_features % block_size(wanted) == 0) return wanted;
    if (wanted == DType::q4_k && in_features % 32 == 0) return DType::q5_0;
    if (wanted == DType::q6_k && in_features % 32 == 0) return DType::q8_0;
    return DType::float16;
}

}  // namespace llm
