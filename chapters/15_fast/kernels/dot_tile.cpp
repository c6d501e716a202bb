#include "chapters/15_fast/kernels/dot_tile.hpp"

#include <algorithm>
#include <array>

// Registers of Arm's SVE cannot be elements of an array; NEON is used instead.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include "chapters/15_fast/kernels/horizontal_sums.hpp"
#include "chapters/15_fast/kernels/next_weights.hpp"

namespace llm {
namespace {

constexpr hn::CappedTag<Real, 16> floats;
using Floats = hn::Vec<decltype(floats)>;

// The accumulators of a tile of four rows and four tokens, and the weights and inputs that are
// being multiplied, fill 21 registers. AVX2 and WebAssembly have 16: for tiles of two rows.
constexpr std::size_t rows_of_tile = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM ? 4 : 2;

Floats load(ConstMatrixView matrix, std::size_t row, std::size_t column) {
    return hn::LoadU(floats, matrix.data + row * matrix.stride + column);
}

constexpr std::size_t ceil_div(std::size_t number, std::size_t divisor) {
    return (number + divisor - 1) / divisor;
}

// The products of some rows and tokens: a register tile. A step of the loop multiplies as many
// features as a register holds.
template <std::size_t num_rows, std::size_t num_tokens>
auto multiply_tile(ConstMatrixView inputs, ConstMatrixView rows, NextWeights& next) {
    // horizontal_sums adds up four registers at a time.
    constexpr std::size_t num_fours = ceil_div(num_rows * num_tokens, 4);
    std::array<Floats, 4 * num_fours> sums;
    for (Floats& sum : sums) sum = hn::Zero(floats);
    const std::size_t lanes = hn::Lanes(floats), size = inputs.num_columns;
    std::size_t i = 0;
    for (; i + lanes <= size; i += lanes) {
        std::array<Floats, num_rows> weights;
        for (std::size_t r = 0; r < num_rows; ++r) weights[r] = load(rows, r, i);
        for (std::size_t t = 0; t < num_tokens; ++t) {
            const Floats input = load(inputs, t, i);
            for (std::size_t r = 0; r < num_rows; ++r)
                sums[t * num_rows + r] = hn::MulAdd(weights[r], input, sums[t * num_rows + r]);
        }
        next.prefetch_step();
    }
    std::array<std::array<Real, 4>, num_fours> products;
    for (std::size_t k = 0; k < num_fours; ++k)
        products[k] = horizontal_sums(floats, sums[4 * k], sums[4 * k + 1], sums[4 * k + 2],
                                      sums[4 * k + 3]);
    for (; i < size; ++i)  // the remainder
        for (std::size_t k = 0; k < num_rows * num_tokens; ++k)
            products[k / 4][k % 4] += rows[k % num_rows][i] * inputs[k / num_rows][i];
    return products;
}

// A tile, and its place in the outputs.
template <std::size_t num_rows, std::size_t num_tokens>
void store_tile(ConstMatrixView inputs, ConstMatrixView rows, MatrixView outputs, Update update,
                NextWeights& next) {
    const auto products = multiply_tile<num_rows, num_tokens>(inputs, rows, next);
    for (std::size_t k = 0; k < num_rows * num_tokens; ++k) {
        Real& output = outputs[k / num_rows][k % num_rows];
        const Real product = products[k / 4][k % 4];
        output = update == Update::accumulate ? output + product : product;
    }
}

// Multiplies num_rows rows by all tokens, up to four at a time.
template <std::size_t num_rows>
void multiply_rows(ConstMatrixView inputs, ConstMatrixView rows, MatrixView outputs,
                   Update update, NextWeights& next) {
    constexpr std::array tiles = {store_tile<num_rows, 1>, store_tile<num_rows, 2>,
                                  store_tile<num_rows, 3>, store_tile<num_rows, 4>};
    for (std::size_t token = 0; token < inputs.num_rows; token += tiles.size()) {
        const std::size_t count = std::min(tiles.size(), inputs.num_rows - token);
        tiles[count - 1](inputs.rows(token, count), rows, outputs.rows(token, count), update,
                         next);
    }
}

}  // namespace

void multiply_in_tiles(ConstMatrixView inputs, ConstMatrixView rows, MatrixView outputs,
                       Update update, std::span<const std::byte> next_weights) {
    const std::size_t num_tiles = rows.num_rows / rows_of_tile * ceil_div(inputs.num_rows, 4);
    NextWeights next =
        prefetch_in_steps(next_weights, num_tiles * (inputs.num_columns / hn::Lanes(floats)));
    std::size_t row = 0;
    for (; row + rows_of_tile <= rows.num_rows; row += rows_of_tile)
        multiply_rows<rows_of_tile>(inputs, rows.rows(row, rows_of_tile),
                                    outputs.columns(row, rows_of_tile), update, next);
    NextWeights none{};
    for (; row < rows.num_rows; ++row)
        multiply_rows<1>(inputs, rows.rows(row, 1), outputs.columns(row, 1), update, none);
}

}  // namespace llm
