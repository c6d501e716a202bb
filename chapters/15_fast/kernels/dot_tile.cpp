#include "chapters/15_fast/kernels/dot_tile.hpp"

#include <array>

#include "chapters/15_fast/kernels/registers.hpp"
#include "common/numbers/ceil_div.hpp"

#include <hwy/cache_control.h>

namespace llm {
namespace {

// A product of any number of rows and tokens.
template <class Weight>
struct Product {
    ConstMatrixView inputs;
    BasicMatrixView<const Weight> rows;
    MatrixView outputs;
    Update update;
};

// The accumulators of a tile of four rows and six tokens, and the weights and inputs that are
// being multiplied, fill 29 registers. AVX2 and WebAssembly have 16: for tiles of two rows.
constexpr std::size_t rows_of_tile = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM ? 4 : 2;

Real to_float(Real weight) { return weight; }

// The products of some rows and tokens: a register tile. A step of the loop multiplies as many
// features as a register holds, and prefetches the same features of the next rows.
template <std::size_t num_rows, std::size_t num_tokens, class Weight>
void multiply_tile(const Product<Weight>& product, std::size_t row, std::size_t token) {
    const ConstMatrixView inputs = product.inputs.rows(token, num_tokens);
    const auto rows = product.rows.rows(row, num_rows);
    const bool is_last = row + 2 * num_rows > product.rows.num_rows;
    const std::size_t next = is_last ? 0 : num_rows * rows.stride;

    // horizontal_sums adds up four registers at a time.
    constexpr std::size_t num_sums = num_rows * num_tokens, num_fours = (num_sums + 3) / 4;
    std::array<Floats, 4 * num_fours> sums;
    sums.fill(hn::Zero(floats));
    const std::size_t lanes = hn::Lanes(floats), size = inputs.num_columns;
    std::size_t i = 0;
    for (; i + lanes <= size; i += lanes) {
        std::array<Floats, num_rows> weights;
        for (std::size_t r = 0; r < num_rows; ++r) {
            const Weight* weight = rows.data + r * rows.stride + i;
            weights[r] = load(weight);
            hwy::Prefetch(weight + next);
        }
        for (std::size_t t = 0; t < num_tokens; ++t) {
            const Floats input = load(inputs.data + t * inputs.stride + i);
            for (std::size_t r = 0; r < num_rows; ++r)
                sums[t * num_rows + r] = hn::MulAdd(weights[r], input, sums[t * num_rows + r]);
        }
    }
    std::array<std::array<Real, 4>, num_fours> products;
    for (std::size_t k = 0; k < num_fours; ++k)
        products[k] = horizontal_sums(floats, sums[4 * k], sums[4 * k + 1], sums[4 * k + 2],
                                      sums[4 * k + 3]);

    for (std::size_t k = 0; k < num_sums; ++k) {
        const std::size_t r = k % num_rows, t = k / num_rows;
        Real sum = products[k / 4][k % 4];
        for (std::size_t j = i; j < size; ++j) sum += to_float(rows[r][j]) * inputs[t][j];
        Real& output = product.outputs[token + t][row + r];
        output = product.update == Update::accumulate ? output + sum : sum;
    }
}

// Multiplies num_rows rows at a time by all tokens, in groups of up to six. Returns the first
// row of those that remain.
template <std::size_t num_rows, class Weight>
std::size_t multiply_rows(const Product<Weight>& product, std::size_t row) {
    constexpr std::array tiles = {
        multiply_tile<num_rows, 1, Weight>, multiply_tile<num_rows, 2, Weight>,
        multiply_tile<num_rows, 3, Weight>, multiply_tile<num_rows, 4, Weight>,
        multiply_tile<num_rows, 5, Weight>, multiply_tile<num_rows, 6, Weight>};
    const std::size_t num_tokens = product.inputs.num_rows;
    const std::size_t num_groups = ceil_div(num_tokens, tiles.size());
    for (; row + num_rows <= product.rows.num_rows; row += num_rows)
        for (std::size_t group = 0; group < num_groups; ++group) {
            const std::size_t token = group * num_tokens / num_groups;
            const std::size_t end = (group + 1) * num_tokens / num_groups;
            tiles[end - token - 1](product, row, token);
        }
    return row;
}

template <class Weight>
void multiply(const Product<Weight>& product) {
    multiply_rows<1>(product, multiply_rows<rows_of_tile>(product, 0));
}

}  // namespace

void multiply_in_tiles(ConstMatrixView inputs, ConstMatrixView rows, MatrixView outputs,
                       Update update) {
    multiply(Product<Real>{inputs, rows, outputs, update});
}

void multiply_in_tiles(ConstMatrixView inputs, BasicMatrixView<const Bfloat16> rows,
                       MatrixView outputs, Update update) {
    multiply(Product<Bfloat16>{inputs, rows, outputs, update});
}

}  // namespace llm
