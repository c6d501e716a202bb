#include "chapters/16_quantization/kernels/integer_products.hpp"

#include <algorithm>
#include <limits>

#include "chapters/16_quantization/kernels/quantized_inputs.hpp"
#include "chapters/16_quantization/kernels/unpack_blocks.hpp"

namespace llm {
namespace {

// Adds the products of a group of weights of all rows and one token. The group begins at this
// input of the token.
template <class Block>
HWY_INLINE Floats add_group(const Integers* weights, Floats scale, Floats min,
                            const QuantizedInputs& token, std::size_t input, Floats sum) {
    using Rows = Unpacker<Block>;
    const Integers products =
        sum_products<Rows::largest, Rows::group_size / 4>(weights, token.values + input);
    const std::size_t input_group = input / Rows::group_size;
    const Floats input_sum = hn::Set(floats, token.groups.sums[input_group]);
    Floats scaled = hn::Mul(hn::ConvertTo(floats, products),
                            hn::Set(floats, token.groups.scales[input_group]));
    if constexpr (Rows::offset > 0)
        scaled = hn::NegMulAdd(hn::Set(floats, Rows::offset), input_sum, scaled);
    sum = hn::MulAdd(scale, scaled, sum);
    return Rows::has_mins ? hn::NegMulAdd(min, input_sum, sum) : sum;
}

// Adds the products of a block of all rows and some tokens. Each part is unpacked once for all
// tokens.
template <class Block, std::size_t num_tokens>
HWY_INLINE void add_block(const std::byte* block,
                          const std::array<QuantizedInputs, num_tokens>& tokens,
                          std::size_t first_input, std::array<Floats, num_tokens>& sums) {
    using Rows = Unpacker<Block>;
    Rows rows;
    rows.blocks = {block};
    for (std::size_t p = 0; p < Rows::block_size / Rows::part_size; ++p) {
        const auto weights = rows.part(p);
        for (std::size_t i = 0; i < Rows::part_size; i += Rows::group_size) {
            const std::size_t begin = p * Rows::part_size + i;
            const Floats scale = rows.scale(begin / Rows::group_size);
            Floats min = hn::Zero(floats);
            if constexpr (Rows::has_mins) min = rows.min(begin / Rows::group_size);
            for (std::size_t t = 0; t < num_tokens; ++t)
                sums[t] = add_group<Block>(&weights[i / 4], scale, min, tokens[t],
                                           first_input + begin, sums[t]);
        }
    }
}

// Writes the products of up to num_lanes rows and one token.
void store(Floats sums, std::span<Real> outputs, Update update) {
    std::array<Real, num_lanes> products;
    hn::StoreU(sums, floats, products.data());
    for (std::size_t r = 0; r < outputs.size(); ++r)
        outputs[r] = update == Update::accumulate ? outputs[r] + products[r] : products[r];
}

// The products of num_lanes rows and some tokens: a register tile.
template <class Block, std::size_t num_tokens>
void multiply_tile(const Product<Block>& product, std::size_t row, std::size_t first_token) {
    std::array<QuantizedInputs, num_tokens> tokens;
    for (std::size_t t = 0; t < num_tokens; ++t) tokens[t] = product.token(first_token + t);
    std::array<Floats, num_tokens> sums;
    sums.fill(hn::Zero(floats));
    const std::byte* blocks = product.group(row);
    for (std::size_t b = 0; b < product.num_blocks(); ++b)
        add_block<Block>(blocks + b * num_lanes * sizeof(Block), tokens,
                         b * Unpacker<Block>::block_size, sums);
    const std::size_t num_rows = std::min(num_lanes, product.outputs.num_columns - row);
    for (std::size_t t = 0; t < num_tokens; ++t)
        store(sums[t], product.outputs[first_token + t].subspan(row, num_rows), product.update);
}

// The rows of a tile are read from memory once, and stay in the cache for all tokens.
template <class Block>
void multiply(const Product<Block>& product) {
    constexpr std::array tiles = {multiply_tile<Block, 1>, multiply_tile<Block, 2>,
                                  multiply_tile<Block, 3>, multiply_tile<Block, 4>};
    const std::size_t num_tokens = product.outputs.num_rows;
    for (std::size_t row = 0; row < product.outputs.num_columns; row += num_lanes)
        for (std::size_t n = 0; n < num_tokens; n += tiles.size())
            tiles[std::min(tiles.size(), num_tokens - n) - 1](product, row, n);
}

// Four registers hold 16 weights of each row, four to a lane. Transposes the blocks of 4 x 4
// lanes: then the 16 weights of a row are adjacent. Row 4j + k is block j of register k.
void store_by_row(const Integers* four, std::int8_t* weights) {
    const hn::RepartitionToWide<decltype(integers)> pairs;
    const auto lower = [&](Integers a, Integers b) {
        return hn::BitCast(pairs, hn::InterleaveLower(integers, a, b));
    };
    const auto upper = [&](Integers a, Integers b) {
        return hn::BitCast(pairs, hn::InterleaveUpper(integers, a, b));
    };
    const auto lower01 = lower(four[0], four[1]), lower23 = lower(four[2], four[3]);
    const auto upper01 = upper(four[0], four[1]), upper23 = upper(four[2], four[3]);
    const std::array rows = {hn::InterleaveLower(pairs, lower01, lower23),
                             hn::InterleaveUpper(pairs, lower01, lower23),
                             hn::InterleaveLower(pairs, upper01, upper23),
                             hn::InterleaveUpper(pairs, upper01, upper23)};
    for (std::size_t k = 0; k < 4; ++k)
        hn::StoreU(hn::BitCast(integers, rows[k]), integers,
                   reinterpret_cast<std::int32_t*>(weights) + k * num_lanes);
}

// The weights of a group of rows.
template <class Block>
void dequantize_group(const std::byte* blocks, MatrixView rows) {
    using Rows = Unpacker<Block>;
    using Byte =
        std::conditional_t<Rows::largest == largest_with_sign, std::int8_t, std::uint8_t>;
    constexpr hn::Rebind<Byte, decltype(integers)> some_bytes;
    std::array<std::int8_t, 16 * num_lanes> values;
    std::array<Real, num_lanes> scales, mins;
    for (std::size_t begin = 0; begin < rows.num_columns; begin += Rows::part_size) {
        const std::size_t in_block = begin % Rows::block_size;
        Rows unpacker;
        unpacker.blocks = {blocks + begin / Rows::block_size * num_lanes * sizeof(Block)};
        const auto weights = unpacker.part(in_block / Rows::part_size);
        for (std::size_t i = 0; i < Rows::part_size; i += 16) {
            const std::size_t group = (in_block + i) / Rows::group_size;
            const Floats scale = unpacker.scale(group);
            hn::StoreU(scale, floats, scales.data());
            if constexpr (Rows::has_mins)
                hn::StoreU(unpacker.min(group), floats, mins.data());
            else
                hn::StoreU(hn::Mul(scale, hn::Set(floats, Rows::offset)), floats, mins.data());
            store_by_row(&weights[i / 4], values.data());
            for (std::size_t r = 0; r < rows.num_rows; ++r) {
                const std::size_t place = r % 4 * (num_lanes / 4) + r / 4;
                const auto* bytes = reinterpret_cast<const Byte*>(&values[16 * place]);
                for (std::size_t k = 0; k < 16; k += num_lanes) {
                    const Floats value = hn::ConvertTo(
                        floats, hn::PromoteTo(integers, hn::LoadU(some_bytes, bytes + k)));
                    hn::StoreU(
                        hn::MulSub(value, hn::Set(floats, scales[r]), hn::Set(floats, mins[r])),
                        floats, &rows[r][begin + i + k]);
                }
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

void dequantize_interleaved(DType dtype, std::span<const std::byte> group, MatrixView rows) {
    for_dtype(dtype,
              [&]<class Block>(const Block&) { dequantize_group<Block>(group.data(), rows); });
}

std::string integer_instruction() {
    return instruction_name + std::string(", ") + std::to_string(32 * num_lanes) + " bits";
}

bool is_fast_for_many_tokens([[maybe_unused]] DType dtype) {
#if defined(LLM_VNNI) || defined(LLM_SDOT)
    return true;
#elif defined(LLM_MADDUBS)
    return dtype != DType::q8_0;
#else
    return false;
#endif
}

}  // namespace llm
