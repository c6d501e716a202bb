#include "chapters/16_quantization/fake_quantize.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace

Matrix fake_quantize(const Matrix& weights, std::size_t block_size, int num_bits) {
    require(block_size > 0 && num_bits >= 2 && num_bits <= 8,
            "fake_quantize: no blocks of {} weights with {} bits", block_size, num_bits);
    const auto largest_integer = static_cast<Real>((1 << (num_bits - 1)) - 1);
    Matrix rounded = weights;
    const MatrixView rows = view_of(rounded);
    for (std::size_t row = 0; row < rows.num_rows; ++row)
        for (std::size_t begin = 0; begin < rows.num_columns; begin += block_size)
            round_block(
                rows[row].subspan(begin, std::min(block_size, rows.num_columns - begin)),
                largest_integer);
    return rounded;
}

Model fake_quantize(const Model& model, std::size_t block_size, int num_bits) {
    Model rounded = model;
    const auto round = [&](Matrix& weight) {
        weight = fake_quantize(weight, block_size, num_bits);
    };
    round(rounded.embed_tokens);
    if (rounded.lm_head) round(*rounded.lm_head);
    for (PreNormBlock& layer : rounded.layers) {
        auto& [q_proj, k_proj, v_proj, o_proj] = layer.self_attn.projections;
        for (Linear* linear : {&q_proj, &k_proj, &v_proj, &o_proj, &layer.mlp.gate_proj,
                               &layer.mlp.up_proj, &layer.mlp.down_proj})
            round(linear->weight);
    }
    return rounded;
}

double relative_error(const Matrix& rounded, const Matrix& weights) {
    const Matrix error = rounded - weights;
    return root_mean_square(error) / root_mean_square(weights);
}

}  // namespace llm
