#include "chapters/16_quantization/integer_products.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/tensors/block_types.hpp"

#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

namespace llm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Inputs of one token, in groups as the weights: the integers, the scale of each group, and its
// scale times the sum of its integers.
struct QuantizedInputs {
    const std::int8_t* values;
    const Real* scales;
    const Real* scaled_sums;
};

// The memory of the quantized inputs of a token: the integers, then scales and sums in groups
// of 32, then both in groups of 16. Zeros follow each part, because a register may be loaded
// beyond the end.
struct InputLayout {
    std::size_t num_values, num_groups_of_32, num_groups_of_16;

    explicit InputLayout(std::size_t in_features)
        : num_values((in_features + 127) / 64 * 64),
          num_groups_of_32((in_features / 32 + 31) / 16 * 16),
          num_groups_of_16((in_features / 16 + 31) / 16 * 16) {}
    std::size_t nbytes() const {
        return num_values + 2 * (num_groups_of_32 + num_groups_of_16) * sizeof(Real);
    }
};

// The inputs from one index on.
QuantizedInputs inputs_from(std::size_t begin, const std::byte* memory, std::size_t in_features,
                            std::size_t group_size) {
    const InputLayout layout(in_features);
    const auto* scales = reinterpret_cast<const Real*>(memory + layout.num_values);
    if (group_size == 16) scales += 2 * layout.num_groups_of_32;
    const Real* scaled_sums =
        scales + (group_size == 16 ? layout.num_groups_of_16 : layout.num_groups_of_32);
    return {reinterpret_cast<const std::int8_t*>(memory) + begin, scales + begin / group_size,
            scaled_sums + begin / group_size};
}

// 16 bytes, or fewer in a build without SIMD.
constexpr hn::CappedTag<std::uint8_t, 16> bytes;
using Bytes = hn::Vec<decltype(bytes)>;

// Stores the low halves of 16 bytes, and their high halves.
void unpack_halves(const std::uint8_t* halves, std::uint8_t* low, std::uint8_t* high) {
    for (std::size_t i = 0; i < 16; i += hn::Lanes(bytes)) {
        const Bytes both = hn::LoadU(bytes, halves + i);
        hn::StoreU(hn::And(both, hn::Set(bytes, 15)), bytes, low + i);
        hn::StoreU(hn::ShiftRight<4>(both), bytes, high + i);
    }
}

// The integers of a block of 32 weights, with an offset that makes all of them positive.
constexpr Real offset_of(const BlockQ8_0&) { return 128; }
void unpack(const BlockQ8_0& block, std::uint8_t* values) {
    const auto* stored = reinterpret_cast<const std::uint8_t*>(block.values.data());
    for (std::size_t i = 0; i < 32; i += hn::Lanes(bytes))
        hn::StoreU(hn::Add(hn::LoadU(bytes, stored + i), hn::Set(bytes, 128)), bytes,
                   values + i);
}

constexpr Real offset_of(const BlockQ4_0&) { return 8; }
void unpack(const BlockQ4_0& block, std::uint8_t* values) {
    unpack_halves(block.values.data(), values, values + 16);
}

// For each byte, its eight bits as the fifth bits of eight weights.
constexpr auto fifth_bits = [] {
    std::array<std::array<std::uint8_t, 8>, 256> table{};
    for (std::size_t byte = 0; byte < 256; ++byte)
        for (std::size_t i = 0; i < 8; ++i)
            table[byte][i] = static_cast<std::uint8_t>((byte >> i & 1) << 4);
    return table;
}();

constexpr Real offset_of(const BlockQ5_0&) { return 16; }
void unpack(const BlockQ5_0& block, std::uint8_t* values) {
    unpack_halves(block.values.data(), values, values + 16);
    for (std::size_t i = 0; i < 32; ++i) values[i] |= fifth_bits[block.high_bits[i / 8]][i % 8];
}

// With one instruction, where the processor has one.
float to_float(const Half& half) {
    constexpr hn::CappedTag<float, 1> one_float;
    constexpr hn::Rebind<hwy::float16_t, decltype(one_float)> one_half;
    const auto* source = reinterpret_cast<const hwy::float16_t*>(&half);
    return hn::GetLane(hn::PromoteTo(one_float, hn::LoadU(one_half, source)));
}

// Blocks of 32 weights with one scale.
template <class Block>
void unpack_blocks(std::span<const std::byte> stored, UnpackedWeights& weights) {
    const auto* blocks = reinterpret_cast<const Block*>(stored.data());
    for (std::size_t i = 0; i < weights.size / 32; ++i) {
        unpack(blocks[i], &weights.values[32 * i]);
        weights.scales[i] = to_float(blocks[i].scale);
        weights.mins[i] = offset_of(blocks[i]) * weights.scales[i];
    }
}

void unpack_q4_k(std::span<const std::byte> stored, UnpackedWeights& weights) {
    const auto& block = *reinterpret_cast<const BlockQ4_K*>(stored.data());
    const float scale = to_float(block.scale), min_scale = to_float(block.min_scale);
    for (std::size_t group = 0; group < 8; ++group) {
        const ScaleAndMin bits = unpack_scale_and_min(block.scales_and_mins, group);
        weights.scales[group] = scale * static_cast<Real>(bits.scale);
        weights.mins[group] = min_scale * static_cast<Real>(bits.min);
    }
    for (std::size_t i = 0; i < 128; i += 16) {  // two groups share 32 bytes
        std::uint8_t* first = &weights.values[i / 32 * 64 + i % 32];
        unpack_halves(&block.values[i], first, first + 32);
    }
}

void unpack_q6_k(std::span<const std::byte> stored, UnpackedWeights& weights) {
    const auto& block = *reinterpret_cast<const BlockQ6_K*>(stored.data());
    const float scale = to_float(block.scale);
    for (std::size_t group = 0; group < 16; ++group) {
        weights.scales[group] = scale * static_cast<Real>(block.scales[group]);
        weights.mins[group] = 32 * weights.scales[group];
    }
    const Bytes two_bits = hn::Set(bytes, 3 << 4);
    for (std::size_t half = 0; half < 2; ++half)
        for (std::size_t i = 0; i < 32; i += hn::Lanes(bytes)) {
            const Bytes low0 = hn::LoadU(bytes, &block.low_bits[64 * half + i]);
            const Bytes low1 = hn::LoadU(bytes, &block.low_bits[64 * half + 32 + i]);
            const Bytes high = hn::LoadU(bytes, &block.high_bits[32 * half + i]);
            const Bytes four_bits = hn::Set(bytes, 15);
            std::uint8_t* values = &weights.values[128 * half + i];
            const auto store = [&](std::size_t run, Bytes low, Bytes shifted) {
                hn::StoreU(hn::Or(low, hn::And(shifted, two_bits)), bytes, values + 32 * run);
            };
            store(0, hn::And(low0, four_bits), hn::ShiftLeft<4>(high));
            store(1, hn::And(low1, four_bits), hn::ShiftLeft<2>(high));
            store(2, hn::ShiftRight<4>(low0), high);
            store(3, hn::ShiftRight<4>(low1), hn::ShiftRight<2>(high));
        }
}

// A sum that is spread over the lanes of a register.
struct PartialSums {
    alignas(64) std::array<Real, 16> lanes{};

    Real total() const { return std::accumulate(lanes.begin(), lanes.end(), Real(0)); }
};

#if defined(__AVX512VNNI__)

// One instruction multiplies 64 pairs of integers of 8 bits, and adds up the products of each
// four neighbors. A group of weights is four or eight of the 16 sums, which share a scale.
template <int group_size>
void add_products(const UnpackedWeights& weights, const QuantizedInputs& inputs,
                  PartialSums& sums) {
    const __m512 scales =
        _mm512_mul_ps(_mm512_load_ps(weights.scales.data()), _mm512_loadu_ps(inputs.scales));
    __m512i group = group_size == 16
                        ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                        : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    // The mins are multiplied by the sums of the inputs.
    __m512 total = _mm512_fnmadd_ps(_mm512_load_ps(weights.mins.data()),
                                    _mm512_loadu_ps(inputs.scaled_sums),
                                    _mm512_load_ps(sums.lanes.data()));
    for (std::size_t i = 0; i < weights.size; i += 64) {
        const __m512i products =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_load_si512(&weights.values[i]),
                                _mm512_loadu_si512(inputs.values + i));
        total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products),
                                _mm512_permutexvar_ps(group, scales), total);
        group = _mm512_add_epi32(group, _mm512_set1_epi32(64 / group_size));
    }
    _mm512_store_ps(sums.lanes.data(), total);
}

#else

// The sum of the products of 16 integers.
#if HWY_TARGET == HWY_SCALAR  // without SIMD
int sum_of_products(const std::uint8_t* weights, const std::int8_t* inputs) {
    int sum = 0;
    for (std::size_t i = 0; i < 16; ++i) sum += weights[i] * inputs[i];
    return sum;
}
#else
// Widens 8 bits to 16, multiplies, and adds up pairs of products in 32 bits.
int sum_of_products(const std::uint8_t* weights, const std::int8_t* inputs) {
    constexpr hn::CappedTag<std::int16_t, 16> shorts;
    constexpr hn::Rebind<std::uint8_t, decltype(shorts)> unsigned_bytes;
    constexpr hn::Rebind<std::int8_t, decltype(shorts)> signed_bytes;
    constexpr hn::RepartitionToWide<decltype(shorts)> integers;
    auto even = hn::Zero(integers), odd = hn::Zero(integers);
    for (std::size_t i = 0; i < 16; i += hn::Lanes(shorts)) {
        const auto w = hn::PromoteTo(shorts, hn::LoadU(unsigned_bytes, weights + i));
        const auto x = hn::PromoteTo(shorts, hn::LoadU(signed_bytes, inputs + i));
        even = hn::ReorderWidenMulAccumulate(integers, w, x, even, odd);
    }
    return hn::GetLane(hn::SumOfLanes(integers, hn::Add(even, odd)));
}
#endif

template <int group_size>
void add_products(const UnpackedWeights& weights, const QuantizedInputs& inputs,
                  PartialSums& sums) {
    for (std::size_t group = 0; group < weights.size / group_size; ++group) {
        int sum = 0;
        for (std::size_t i = group_size * group; i < group_size * (group + 1); i += 16)
            sum += sum_of_products(&weights.values[i], inputs.values + i);
        sums.lanes[0] += weights.scales[group] * inputs.scales[group] * static_cast<Real>(sum) -
                         weights.mins[group] * inputs.scaled_sums[group];
    }
}

#endif

constexpr Real largest = std::numeric_limits<Real>::max();

// The scale that maps the largest magnitude to 127; NaN if an input is not finite.
Real scale_of(std::span<const Real> inputs) {
    Real absmax = 0;
    bool all_finite = true;
    for (const Real input : inputs) {
        absmax = std::max(absmax, std::abs(input));
        all_finite = all_finite && std::abs(input) <= largest;
    }
    return all_finite ? absmax / 127 : std::numeric_limits<Real>::quiet_NaN();
}

}  // namespace

void unpack(DType dtype, std::span<const std::byte> blocks, std::size_t size,
            UnpackedWeights& weights) {
    weights.size = size;
    if (dtype == DType::q8_0) unpack_blocks<BlockQ8_0>(blocks, weights);
    if (dtype == DType::q4_0) unpack_blocks<BlockQ4_0>(blocks, weights);
    if (dtype == DType::q5_0) unpack_blocks<BlockQ5_0>(blocks, weights);
    if (dtype == DType::q4_k) unpack_q4_k(blocks, weights);
    if (dtype == DType::q6_k) unpack_q6_k(blocks, weights);
}

void dequantize_by_unpacking(DType dtype, std::span<const std::byte> row,
                             std::span<Real> weights) {
    UnpackedWeights unpacked;
    const std::size_t step = group_size(dtype);
    for (std::size_t begin = 0; begin < weights.size(); begin += max_unpacked) {
        const std::size_t size = std::min(max_unpacked, weights.size() - begin);
        unpack(dtype, row.subspan(bytes_per_row(dtype, begin)), size, unpacked);
        for (std::size_t group = 0; group < size / step; ++group) {
            const Real scale = unpacked.scales[group], min = unpacked.mins[group];
            for (std::size_t i = step * group; i < step * (group + 1); ++i)
                weights[begin + i] = scale * static_cast<Real>(unpacked.values[i]) - min;
        }
    }
}

std::size_t group_size(DType dtype) { return dtype == DType::q6_k ? 16 : 32; }

std::size_t quantized_input_bytes(std::size_t in_features) {
    return InputLayout(in_features).nbytes();
}

void quantize_inputs(std::span<const Real> inputs, std::span<std::byte> quantized) {
    const InputLayout layout(inputs.size());
    const std::size_t num_blocks = inputs.size() / 32;
    std::ranges::fill(quantized, std::byte{0});
    auto* values = reinterpret_cast<std::int8_t*>(quantized.data());
    auto* scales = reinterpret_cast<Real*>(quantized.data() + layout.num_values);
    Real *sums = scales + layout.num_groups_of_32,
         *scales_of_16 = sums + layout.num_groups_of_32;
    Real* sums_of_16 = scales_of_16 + layout.num_groups_of_16;
    for (std::size_t block = 0; block < num_blocks; ++block) {
        const Real scale = scale_of(inputs.subspan(32 * block, 32));
        const Real inverse = scale > 1 / largest ? 1 / scale : 0;  // 0 also for NaN
        scales[block] = scale;
        sums[block] = 0;
        for (std::size_t group = 2 * block; group < 2 * block + 2; ++group) {
            int sum = 0;
            for (std::size_t i = 16 * group; i < 16 * (group + 1); ++i) {
                const Real quotient = inverse == 0 ? 0 : inputs[i] * inverse;
                const int value = static_cast<int>(std::nearbyint(quotient));
                values[i] = static_cast<std::int8_t>(value);
                sum += value;
            }
            scales_of_16[group] = scale;
            sums_of_16[group] = scale * static_cast<Real>(sum);
            sums[block] += sums_of_16[group];
        }
    }
}

void matmul_quantized(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                      std::span<const std::byte> inputs, MatrixView outputs, Update update) {
    const std::size_t row_size = bytes_per_row(dtype, in_features);
    const std::size_t input_size = quantized_input_bytes(in_features);
    const auto add = group_size(dtype) == 16 ? add_products<16> : add_products<32>;

    // Unpack parts of several rows before the products read them: a load that spans several
    // recent stores has to wait for them.
    constexpr std::size_t rows_at_once = 4;
    std::array<UnpackedWeights, rows_at_once> unpacked;
    std::array<std::array<PartialSums, rows_at_once>, max_quantized_tokens> sums;
    for (std::size_t first = 0; first < outputs.num_columns; first += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, outputs.num_columns - first);
        for (std::size_t n = 0; n < outputs.num_rows; ++n) sums[n] = {};
        for (std::size_t begin = 0; begin < in_features; begin += max_unpacked) {
            const std::size_t size = std::min(max_unpacked, in_features - begin);
            const std::size_t offset = bytes_per_row(dtype, begin);
            for (std::size_t r = 0; r < count; ++r)
                unpack(dtype, rows.subspan((first + r) * row_size + offset), size, unpacked[r]);
            for (std::size_t n = 0; n < outputs.num_rows; ++n) {
                const QuantizedInputs token =
                    inputs_from(begin, &inputs[n * input_size], in_features, group_size(dtype));
                for (std::size_t r = 0; r < count; ++r) add(unpacked[r], token, sums[n][r]);
            }
        }
        for (std::size_t n = 0; n < outputs.num_rows; ++n)
            for (std::size_t r = 0; r < count; ++r) {
                Real& output = outputs[n][first + r];
                const Real product = sums[n][r].total();
                output = update == Update::accumulate ? output + product : product;
            }
    }
}

}  // namespace llm
