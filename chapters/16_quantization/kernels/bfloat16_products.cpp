#include "chapters/16_quantization/kernels/bfloat16_products.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "chapters/15_fast/kernels/simd.hpp"
#include "common/numbers/ceil_div.hpp"

// Registers of Arm's SVE cannot be elements of an array; NEON is used instead.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#if defined(__AVX512BF16__) && HWY_MAX_BYTES >= 64
#define LLM_AVX512_BF16
#endif

namespace llm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A lane holds two features of one token, the first one in the lower half, or the sum of their
// products.
constexpr hn::CappedTag<std::uint32_t, 16> pairs;
constexpr hn::Rebind<Real, decltype(pairs)> floats;
using Pairs = hn::Vec<decltype(pairs)>;
using Floats = hn::Vec<decltype(floats)>;
constexpr std::size_t num_lanes = hn::MaxLanes(pairs);

// sums += weights[0] * inputs[0] + weights[1] * inputs[1], in each lane.
Floats add_products(Pairs weights, Pairs inputs, Floats sums) {
#ifdef LLM_AVX512_BF16
    return Floats{_mm512_dpbf16_ps(sums.raw, std::bit_cast<__m512bh>(weights.raw),
                                   std::bit_cast<__m512bh>(inputs.raw))};
#else
    const auto first = [](Pairs both) { return hn::BitCast(floats, hn::ShiftLeft<16>(both)); };
    const auto second = [](Pairs both) {
        return hn::BitCast(floats, hn::And(both, hn::Set(pairs, 0xFFFF0000)));
    };
    sums = hn::MulAdd(first(weights), first(inputs), sums);
    return hn::MulAdd(second(weights), second(inputs), sums);
#endif
}

constexpr std::size_t pair_size = 4;  // bytes

// As to_bfloat16 (dtype.hpp), but inline: the compiler can vectorize the loop that calls it.
std::uint16_t rounded_bits(Real value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
    return static_cast<std::uint16_t>((value == value ? rounded : bits | 0x400000) >> 16);
}

// Rounds up to 64 features of a group of tokens and writes them, pair by pair. Lanes without a
// token, and the second half of an odd last pair, get zeros. Returns the end of what it has
// written.
constexpr std::size_t part_size = 64;
std::byte* write_part(ConstMatrixView inputs, std::byte* rounded) {
    std::array<std::array<std::uint16_t, part_size>, num_lanes> bits{};
    for (std::size_t n = 0; n < inputs.num_rows; ++n)
        for (std::size_t i = 0; i < inputs.num_columns; ++i)
            bits[n][i] = rounded_bits(inputs[n][i]);
    for (std::size_t i = 0; i < inputs.num_columns; i += 2)
        for (std::size_t lane = 0; lane < num_lanes; ++lane, rounded += pair_size)
            std::memcpy(rounded, &bits[lane][i], pair_size);
    return rounded;
}

struct Bfloat16Product {
    std::span<const std::byte> rows;
    std::size_t in_features;
    std::span<const std::byte> inputs;
    MatrixView outputs;
    Update update;

    std::size_t row_size() const { return in_features * sizeof(Bfloat16); }
    const std::byte* row(std::size_t r) const { return &rows[r * row_size()]; }
};

// The products of adjacent rows and a group of tokens: a register tile. Each register of inputs
// is loaded once for all rows. Meanwhile, the next rows are prefetched.
template <std::size_t num_rows>
std::array<Floats, num_rows> multiply_tile(const std::byte* rows, std::size_t in_features,
                                           const std::byte* inputs,
                                           const std::byte* next_rows) {
    std::array<Floats, num_rows> sums;
    sums.fill(hn::Zero(floats));
    const auto add_pair = [&](std::size_t i, std::size_t num_bytes) {
        const auto* lanes = reinterpret_cast<const std::uint32_t*>(inputs) + i * num_lanes;
        const Pairs features = hn::LoadU(pairs, lanes);
        for (std::size_t r = 0; r < num_rows; ++r) {
            std::uint32_t weights = 0;
            std::memcpy(&weights, rows + r * in_features * sizeof(Bfloat16) + i * pair_size,
                        num_bytes);
            sums[r] = add_products(hn::Set(pairs, weights), features, sums[r]);
        }
        hwy::Prefetch(next_rows + i * num_rows * pair_size);
    };
    for (std::size_t i = 0; i < in_features / 2; ++i) add_pair(i, pair_size);
    if (in_features % 2 == 1) add_pair(in_features / 2, sizeof(Bfloat16));
    return sums;
}

// Writes the sums of a tile to the outputs, in which a lane is a row.
template <std::size_t num_rows>
void store_tile(const std::array<Floats, num_rows>& sums, MatrixView outputs, Update update) {
    std::array<std::array<Real, num_lanes>, num_rows> products;
    for (std::size_t r = 0; r < num_rows; ++r) hn::StoreU(sums[r], floats, products[r].data());
    for (std::size_t n = 0; n < outputs.num_rows; ++n)
        for (std::size_t r = 0; r < num_rows; ++r) {
            Real& output = outputs[n][r];
            output = update == Update::accumulate ? output + products[r][n] : products[r][n];
        }
}

// Multiplies all tokens by num_rows rows at a time. Returns the first row of those that remain.
template <std::size_t num_rows>
std::size_t multiply_rows(const Bfloat16Product& product, std::size_t row) {
    const auto& [rows, in_features, inputs, outputs, update] = product;
    for (; row + num_rows <= outputs.num_columns; row += num_rows) {
        const bool is_last = row + 2 * num_rows > outputs.num_columns;
        const std::byte* next_rows = product.row(is_last ? row : row + num_rows);
        for (std::size_t n = 0; n < outputs.num_rows; n += num_lanes) {
            const std::size_t num_tokens = std::min(num_lanes, outputs.num_rows - n);
            store_tile(multiply_tile<num_rows>(product.row(row), in_features,
                                               &inputs[bfloat16_input_bytes(n, in_features)],
                                               next_rows),
                       outputs.rows(n, num_tokens).columns(row, num_rows), update);
        }
    }
    return row;
}

}  // namespace

std::size_t bfloat16_input_bytes(std::size_t num_tokens, std::size_t in_features) {
    const std::size_t num_groups = ceil_div(num_tokens, num_lanes);
    return num_groups * ((in_features + 1) / 2 * num_lanes * pair_size);
}

void round_to_bfloat16(ConstMatrixView inputs, std::span<std::byte> rounded) {
    std::byte* end = rounded.data();
    for (std::size_t token = 0; token < inputs.num_rows; token += num_lanes) {
        const std::size_t num_tokens = std::min(num_lanes, inputs.num_rows - token);
        for (std::size_t feature = 0; feature < inputs.num_columns; feature += part_size) {
            const std::size_t count = std::min(part_size, inputs.num_columns - feature);
            end = write_part(inputs.rows(token, num_tokens).columns(feature, count), end);
        }
    }
}

void matmul_bfloat16(std::span<const std::byte> rows, std::size_t in_features,
                     std::span<const std::byte> inputs, MatrixView outputs, Update update) {
    const Bfloat16Product product{rows, in_features, inputs, outputs, update};
    multiply_rows<1>(product, multiply_rows<8>(product, 0));
}

bool has_avx512_bf16() {
#ifdef LLM_AVX512_BF16
    return true;
#else
    return false;
#endif
}

}  // namespace llm
