#include "chapters/models/encoders/kernels/packed_products.hpp"

#include <algorithm>
#include <cstring>

#include "chapters/15_fast/kernels/registers.hpp"
#include "common/numbers/ceil_div.hpp"

namespace llm::models {
namespace {

constexpr std::size_t num_lanes = hn::MaxLanes(floats);  // rows of a group
constexpr std::size_t tokens_of_tile = 6;

// The accumulators of a tile, its weights and an input fill 29 registers. AVX2 and WebAssembly
// have 16: for tiles of two groups.
constexpr std::size_t groups_of_tile = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM ? 4 : 2;

// The inputs, in tiles of six tokens: the first feature of each, then the second, and so on.
// Missing tokens of the last tile are zeros.
std::size_t packed_input_bytes(std::size_t num_tokens, std::size_t in_features) {
    return ceil_div(num_tokens, tokens_of_tile) * tokens_of_tile * in_features * sizeof(Real);
}
void pack_inputs(ConstMatrixView inputs, std::span<std::byte> packed) {
    auto* next = reinterpret_cast<Real*>(packed.data());
    for (std::size_t token = 0; token < inputs.num_rows; token += tokens_of_tile) {
        const std::size_t count = std::min(tokens_of_tile, inputs.num_rows - token);
        for (std::size_t i = 0; i < inputs.num_columns; ++i)
            for (std::size_t t = 0; t < tokens_of_tile; ++t)
                *next++ = t < count ? inputs[token + t][i] : 0;
    }
}

// Writes the products of one token, a lane for each row.
void store_products(Floats products, std::span<Real> outputs, Update update) {
    std::array<Real, num_lanes> lanes;
    if (outputs.size() == num_lanes) {
        if (update == Update::accumulate) products = hn::Add(load(outputs.data()), products);
        hn::StoreU(products, floats, outputs.data());
        return;
    }
    hn::StoreU(products, floats, lanes.data());
    for (std::size_t r = 0; r < outputs.size(); ++r)
        outputs[r] = update == Update::accumulate ? outputs[r] + lanes[r] : lanes[r];
}

// The products of some groups of rows and six tokens, of which the outputs have the first ones:
// a register tile.
template <std::size_t num_groups>
void multiply_tile(const Real* groups, std::size_t in_features, const Real* inputs,
                   MatrixView outputs, Update update) {
    std::array<std::array<Floats, num_groups>, tokens_of_tile> sums;
    for (auto& of_token : sums) of_token.fill(hn::Zero(floats));
    for (std::size_t i = 0; i < in_features; ++i) {
        std::array<Floats, num_groups> weights;
        for (std::size_t g = 0; g < num_groups; ++g)
            weights[g] = load(groups + (g * in_features + i) * num_lanes);
        for (std::size_t t = 0; t < tokens_of_tile; ++t) {
            const Floats input = hn::Set(floats, inputs[i * tokens_of_tile + t]);
            for (std::size_t g = 0; g < num_groups; ++g)
                sums[t][g] = hn::MulAdd(weights[g], input, sums[t][g]);
        }
    }
    for (std::size_t t = 0; t < tokens_of_tile; ++t)
        for (std::size_t g = 0; g < num_groups && t < outputs.num_rows; ++g) {
            const std::size_t row = g * num_lanes;
            const std::size_t count = std::min(num_lanes, outputs.num_columns - row);
            store_products(sums[t][g], outputs[t].subspan(row, count), update);
        }
}

void matmul_packed(DType, std::span<const std::byte> rows, std::size_t in_features,
                   std::span<const std::byte> inputs, MatrixView outputs, Update update) {
    const auto* weights = reinterpret_cast<const Real*>(rows.data());
    const auto* packed = reinterpret_cast<const Real*>(inputs.data());
    constexpr auto multiply = multiply_tile<groups_of_tile>, multiply_one = multiply_tile<1>;
    const std::size_t num_rows = outputs.num_columns;
    for (std::size_t row = 0, count = 0; row < num_rows; row += count) {
        const bool is_whole = num_rows - row > (groups_of_tile - 1) * num_lanes;
        count = std::min(num_rows - row, (is_whole ? groups_of_tile : 1) * num_lanes);
        for (std::size_t t = 0; t < outputs.num_rows; t += tokens_of_tile)
            (is_whole ? multiply : multiply_one)(
                weights + row * in_features, in_features, packed + t * in_features,
                outputs.rows(t, std::min(tokens_of_tile, outputs.num_rows - t))
                    .columns(row, count),
                update);
    }
}

// Lane r of a group has row r. Missing rows are zeros.
void interleave(DType, std::span<const std::byte> rows, std::size_t in_features,
                std::span<std::byte> groups) {
    const auto* weights = reinterpret_cast<const Real*>(rows.data());
    auto* interleaved = reinterpret_cast<Real*>(groups.data());
    std::ranges::fill(groups, std::byte{0});
    for (std::size_t row = 0; row < rows.size() / (in_features * sizeof(Real)); ++row)
        for (std::size_t i = 0; i < in_features; ++i)
            interleaved[(row / num_lanes * in_features + i) * num_lanes + row % num_lanes] =
                weights[row * in_features + i];
}
void copy_row(DType, std::span<const std::byte> group, std::size_t row_of_group,
              std::span<std::byte> row) {
    for (std::size_t i = 0; i < row.size(); i += sizeof(Real))
        std::memcpy(&row[i], &group[i * num_lanes + row_of_group * sizeof(Real)], sizeof(Real));
}
void copy_rows(DType dtype, std::span<const std::byte> group, MatrixView rows) {
    for (std::size_t r = 0; r < rows.num_rows; ++r)
        copy_row(dtype, group, r, std::as_writable_bytes(rows[r]));
}

}  // namespace

const WeightKernels& packed_float32_kernels() {
    static const QuantizedInputKernels products = {packed_input_bytes, pack_inputs,
                                                   matmul_packed, true};
    static const InterleavedRows layout = {num_lanes, interleave, copy_row, copy_rows};
    static const WeightKernels& float32 = kernels_of(DType::float32);
    static const WeightKernels packed = {DType::float32, float32.quantize, float32.dequantize,
                                         nullptr,        &products,        &layout};
    return packed;
}

}  // namespace llm::models
