#include "chapters/16_quantization/fake_quantize.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/09_full_model/parameters.hpp"
#include "common/numbers/statistics.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// Rounds one block in place.
void round_block(std::span<Real> block, Real largest_integer) {
    Real absmax = 0;
    for (const Real weight : block) absmax = std::max(absmax, std::abs(weight));
    const Real scale = absmax / largest_integer;
    if (scale == 0) return;  // a block of zeros
    for (Real& weight : block) weight = std::round(weight / scale) * scale;
}

// Rounds the blocks of all rows in place.
void round_blocks(MatrixView weights, std::size_t block_size, int num_bits) {
    require(block_size > 0 && num_bits >= 2 && num_bits <= 8,
            "fake_quantize: no blocks of {} weights with {} bits", block_size, num_bits);
    const auto largest_integer = static_cast<Real>((1 << (num_bits - 1)) - 1);
    const std::size_t in_features = weights.num_columns;
    for (std::size_t row = 0; row < weights.num_rows; ++row)
        for (std::size_t begin = 0; begin < in_features; begin += block_size)
            round_block(weights[row].subspan(begin, std::min(block_size, in_features - begin)),
                        largest_integer);
}

}  // namespace

Matrix fake_quantize(const Matrix& weights, std::size_t block_size, int num_bits) {
    Matrix rounded = weights;
    round_blocks(view_of(rounded), block_size, num_bits);
    return rounded;
}

Model fake_quantize(const Model& model, std::size_t block_size, int num_bits) {
    Model rounded = model;
    for (const auto& [name, shape, values] : named_parameters(rounded))
        if (shape.size() == 2)  // norms and biases are vectors
            round_blocks({values.data(), shape[0], shape[1], shape[1]}, block_size, num_bits);
    return rounded;
}

double relative_error(const Matrix& rounded, const Matrix& weights) {
    const Matrix error = rounded - weights;
    return root_mean_square(error) / root_mean_square(weights);
}

}  // namespace llm
