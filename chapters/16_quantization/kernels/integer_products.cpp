#include "chapters/16_quantization/kernels/integer_products.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "chapters/15_fast/kernels/simd.hpp"
#include "chapters/16_quantization/kernels/quantized_inputs.hpp"
#include "chapters/16_quantization/kernels/unpack_blocks.hpp"

#if (defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)
#define LLM_VNNI
#endif
#ifdef LLM_VNNI
#include "chapters/16_quantization/kernels/integer_rows.hpp"
#include "chapters/16_quantization/kernels/integer_tiles.hpp"
#endif

namespace llm {
namespace {

// Multiplies 16 weights by 16 inputs and adds the products to four sums: those of weights 0 to
// 3 to the first one, and so on. This is a single instruction of VNNI. Without it, widen 8 bits
// to 16, multiply, and add up pairs of products in 32 bits.
Integers add_products(Bytes weights, SignedBytes inputs, Integers sums) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return Integers{_mm_dpbusd_epi32(sums.raw, weights.raw, inputs.raw)};
#elif defined(LLM_VNNI)
    return Integers{_mm_dpbusd_avx_epi32(sums.raw, weights.raw, inputs.raw)};
#else
    constexpr hn::FixedTag<std::int16_t, 8> shorts;
    constexpr hn::Half<decltype(bytes)> half;
    constexpr hn::Half<decltype(signed_bytes)> signed_half;
    Integers more_sums = hn::Zero(integers);
    sums = hn::ReorderWidenMulAccumulate(
        integers, hn::PromoteTo(shorts, hn::LowerHalf(half, weights)),
        hn::PromoteTo(shorts, hn::LowerHalf(signed_half, inputs)), sums, more_sums);
    sums = hn::ReorderWidenMulAccumulate(
        integers, hn::PromoteTo(shorts, hn::UpperHalf(half, weights)),
        hn::PromoteTo(shorts, hn::UpperHalf(signed_half, inputs)), sums, more_sums);
    return hn::Add(sums, more_sums);
#endif
}

// The sum of the products of a part of a block. Parts are added up independently, so that they
// do not wait for each other.
template <class Block>
HWY_INLINE FourFloats sum_of_part(const Part<Block>& weights, const std::int8_t* inputs,
                                  const Real* scales) {
    constexpr std::size_t registers_per_group = BlockTraits<Block>::group_size / 16;
    FourFloats sum = hn::Zero(four_floats);
    for (std::size_t g = 0; g < weights.size() / registers_per_group; ++g) {
        Integers products = hn::Zero(integers);
        for (std::size_t k = 0; k < registers_per_group; ++k) {
            const std::size_t i = g * registers_per_group + k;
            products =
                add_products(weights[i], hn::LoadU(signed_bytes, inputs + 16 * i), products);
        }
        sum = hn::MulAdd(hn::ConvertTo(four_floats, products), hn::Set(four_floats, scales[g]),
                         sum);
    }
    return sum;
}

// Σ of the products of a block's mins and the sums of its inputs.
template <std::size_t num_groups>
Real product_of_mins(const std::array<Real, num_groups>& mins, const Real* input_sums) {
    if constexpr (num_groups == 1) return mins[0] * input_sums[0];
    FourFloats sum = hn::Zero(four_floats);
    for (std::size_t g = 0; g + 4 <= num_groups; g += 4)
        sum = hn::MulAdd(hn::LoadU(four_floats, &mins[g]),
                         hn::LoadU(four_floats, input_sums + g), sum);
    return hn::GetLane(hn::SumOfLanes(four_floats, sum));
}

// The products of a block of weights and some tokens. It is unpacked once for all of them.
template <class Block, std::size_t num_tokens>
HWY_INLINE void add_block(const Block& block,
                          const std::array<QuantizedInputs, num_tokens>& tokens,
                          std::array<FourFloats, num_tokens>& sums,
                          std::array<Real, num_tokens>& mins) {
    using Traits = BlockTraits<Block>;
    const GroupScales<Block> weights = unpack_scales(block);
    constexpr std::size_t num_groups = GroupScales<Block>::num_groups;
    std::array<std::array<Real, num_groups>, num_tokens> scales;
    for (std::size_t t = 0; t < num_tokens; ++t) {
        for (std::size_t g = 0; g < num_groups; ++g)
            scales[t][g] = weights.scales[g] * tokens[t].groups.scales[g];
        mins[t] += product_of_mins(weights.mins, tokens[t].groups.sums);
    }
    for (std::size_t begin = 0; begin < Traits::block_size; begin += Traits::part_size) {
        const Part<Block> part = unpack_part(block, begin / Traits::part_size);
        for (std::size_t t = 0; t < num_tokens; ++t)
            sums[t] =
                hn::Add(sums[t], sum_of_part<Block>(part, tokens[t].values + begin,
                                                    &scales[t][begin / Traits::group_size]));
    }
}

// The products of one row and some tokens.
template <std::size_t num_tokens, class Block>
void multiply_row(const Product<Block>& product, std::size_t row, std::size_t first_token) {
    using Traits = BlockTraits<Block>;
    std::array<QuantizedInputs, num_tokens> tokens;
    for (std::size_t t = 0; t < num_tokens; ++t) tokens[t] = product.token(first_token + t, 0);
    std::array<FourFloats, num_tokens> sums;
    sums.fill(hn::Zero(four_floats));
    std::array<Real, num_tokens> mins{};

    const Block* blocks = product.row(row);
    for (std::size_t b = 0; b < product.in_features / Traits::block_size; ++b) {
        add_block(blocks[b], tokens, sums, mins);
        for (QuantizedInputs& token : tokens) {
            token.values += Traits::block_size;
            token.groups.scales += GroupScales<Block>::num_groups;
            token.groups.sums += GroupScales<Block>::num_groups;
        }
    }
    for (std::size_t t = 0; t < num_tokens; ++t) {
        Real& output = product.outputs[first_token + t][row];
        const Real result = hn::GetLane(hn::SumOfLanes(four_floats, sums[t])) - mins[t];
        output = product.update == Update::accumulate ? output + result : result;
    }
}

// The products of one row and all tokens.
template <class Block>
void multiply_row_by_all(const Product<Block>& product, std::size_t row) {
    const std::size_t num_tokens = product.outputs.num_rows;
#ifdef LLM_VNNI
    using Traits = BlockTraits<Block>;
    if constexpr (Traits::block_size == 32) {
        for (std::size_t n = 0; n < num_tokens; ++n) {
            const Real result =
                multiply_blocks(product.row(row), product.in_features / Traits::block_size,
                                product.token(n, 0));
            Real& output = product.outputs[n][row];
            output = product.update == Update::accumulate ? output + result : result;
        }
        return;
    }
#endif
    std::size_t n = 0;
    for (; n + 4 <= num_tokens; n += 4) multiply_row<4>(product, row, n);
    for (; n < num_tokens; ++n) multiply_row<1>(product, row, n);
}

// A decode step: each row is read once, and while it is multiplied, a later one is prefetched.
template <class Block>
void multiply_rows(const Product<Block>& product, std::size_t first_row) {
    constexpr std::size_t prefetch_distance = 4096;
    for (std::size_t row = first_row; row < product.outputs.num_columns; ++row) {
        const std::size_t ahead =
            std::min(row * product.row_size() + prefetch_distance, product.rows.size());
        prefetch(product.rows.subspan(
            ahead, std::min(product.row_size(), product.rows.size() - ahead)));
        multiply_row_by_all(product, row);
    }
}

template <class Block>
void multiply(const Product<Block>& product) {
    std::size_t first_row = 0;
#ifdef LLM_VNNI
    if (product.outputs.num_rows > 1) first_row = multiply_tiles(product);
#endif
    multiply_rows(product, first_row);
}

template <class Block>
void dequantize(const Block& block, Real* weights) {
    using Traits = BlockTraits<Block>;
    const GroupScales<Block> groups = unpack_scales(block);
    for (std::size_t begin = 0; begin < Traits::block_size; begin += Traits::part_size) {
        std::size_t i = begin;
        for (const Bytes sixteen : unpack_part(block, begin / Traits::part_size)) {
            const std::size_t g = i / Traits::group_size;
            std::array<std::uint8_t, 16> values;
            hn::StoreU(sixteen, bytes, values.data());
            for (std::size_t k = 0; k < 16; k += 4, i += 4) {
                const FourFloats four = scaled(&values[k], groups.scales[g]);
                hn::StoreU(hn::Sub(four, hn::Set(four_floats, groups.mins[g])), four_floats,
                           weights + i);
            }
        }
    }
}

// Calls function with a block of the dtype, for its type.
template <typename Function>
void for_dtype(DType dtype, const Function& function) {
    if (dtype == DType::q8_0) function(BlockQ8_0{});
    if (dtype == DType::q4_0) function(BlockQ4_0{});
    if (dtype == DType::q5_0) function(BlockQ5_0{});
    if (dtype == DType::q4_k) function(BlockQ4_K{});
    if (dtype == DType::q6_k) function(BlockQ6_K{});
}

// Registers of up to 16 inputs.
constexpr hn::CappedTag<Real, 16> inputs_tag;
constexpr hn::Rebind<std::int32_t, decltype(inputs_tag)> rounded_tag;
constexpr hn::Rebind<std::int8_t, decltype(inputs_tag)> stored_tag;

// The scale that maps the largest magnitude of 32 inputs to 127; NaN if one is not finite.
Real scale_of(const Real* inputs) {
    auto absmax = hn::Zero(inputs_tag), zero_or_nan = absmax;
    for (std::size_t i = 0; i < 32; i += hn::Lanes(inputs_tag)) {
        const auto values = hn::LoadU(inputs_tag, inputs + i);
        absmax = hn::Max(absmax, hn::Abs(values));
        zero_or_nan = hn::MulAdd(values, hn::Zero(inputs_tag), zero_or_nan);
    }
    if (!hn::AllFalse(inputs_tag, hn::IsNaN(zero_or_nan)))
        return std::numeric_limits<Real>::quiet_NaN();
    return hn::GetLane(hn::MaxOfLanes(inputs_tag, absmax)) / 127;
}

// Rounds 16 inputs, and returns the sum of the integers.
int quantize_group(const Real* inputs, Real inverse_scale, std::int8_t* values) {
    auto sum = hn::Zero(rounded_tag);
    for (std::size_t i = 0; i < 16; i += hn::Lanes(inputs_tag)) {
        const auto rounded = hn::NearestInt(
            hn::Mul(hn::LoadU(inputs_tag, inputs + i), hn::Set(inputs_tag, inverse_scale)));
        hn::StoreU(hn::DemoteTo(stored_tag, rounded), stored_tag, values + i);
        sum = hn::Add(sum, rounded);
    }
    return hn::GetLane(hn::SumOfLanes(rounded_tag, sum));
}

// Rounds the inputs of one token.
void quantize_token(std::span<const Real> inputs, std::span<std::byte> quantized) {
    auto* values = reinterpret_cast<std::int8_t*>(quantized.data());
    auto* scales = reinterpret_cast<Real*>(&quantized[inputs.size()]);
    const InputGroups<Real> groups_of_32 = input_groups<32>(scales, inputs.size());
    const InputGroups<Real> groups_of_16 = input_groups<16>(scales, inputs.size());
    for (std::size_t block = 0; block < inputs.size() / 32; ++block) {
        const Real scale = scale_of(&inputs[32 * block]);
        const Real inverse = scale > std::numeric_limits<Real>::min() ? 1 / scale : 0;
        groups_of_32.scales[block] = scale;
        groups_of_32.sums[block] = 0;
        for (std::size_t group = 2 * block; group < 2 * block + 2; ++group) {
            const int sum = quantize_group(&inputs[16 * group], inverse, values + 16 * group);
            groups_of_16.scales[group] = scale;
            groups_of_16.sums[group] = scale * static_cast<Real>(sum);
            groups_of_32.sums[block] += groups_of_16.sums[group];
        }
    }
}

}  // namespace

std::size_t quantized_input_bytes(std::size_t num_tokens, std::size_t in_features) {
    const std::size_t num_groups = in_features / 32 + in_features / 16;
    const std::size_t bytes_per_token = in_features + 2 * num_groups * sizeof(Real);
    return num_tokens * ((bytes_per_token + 63) / 64 * 64);
}

void quantize_inputs(ConstMatrixView inputs, std::span<std::byte> quantized) {
    const std::size_t size = quantized_input_bytes(1, inputs.num_columns);
    for (std::size_t n = 0; n < inputs.num_rows; ++n)
        quantize_token(inputs[n], quantized.subspan(n * size, size));
}

void matmul_quantized(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                      std::span<const std::byte> inputs, MatrixView outputs, Update update) {
    for_dtype(dtype, [&]<class Block>(const Block&) {
        multiply(Product<Block>{rows, in_features, inputs, outputs, update});
    });
}

bool has_vnni() {
#ifdef LLM_VNNI
    return true;
#else
    return false;
#endif
}

void dequantize_by_unpacking(DType dtype, std::span<const std::byte> row,
                             std::span<Real> weights) {
    for_dtype(dtype, [&]<class Block>(const Block&) {
        constexpr std::size_t block_size = BlockTraits<Block>::block_size;
        const auto* blocks = reinterpret_cast<const Block*>(row.data());
        for (std::size_t i = 0; i < weights.size() / block_size; ++i)
            dequantize(blocks[i], &weights[i * block_size]);
    });
}

}  // namespace llm
