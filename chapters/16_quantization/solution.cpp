#include "chapters/16_quantization/exercise.hpp"

#include <cmath>

#include "chapters/15_fast/matmul.hpp"

namespace exercise {

// Exercise 16.1 — each block has its own scale, so a large weight affects at most 31 others.
std::vector<BlockQ8_0> quantize_row_q8_0(std::span<const Real> weights) {
    std::vector<BlockQ8_0> blocks(weights.size() / 32);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        Real absmax = 0;
        for (const Real weight : weights.subspan(32 * b, 32))
            absmax = std::max(absmax, std::abs(weight));
        const Real scale = absmax / 127;
        blocks[b].scale = Half(scale);
        for (std::size_t i = 0; i < 32; ++i) {
            const Real value = scale == 0 ? 0 : std::round(weights[32 * b + i] / scale);
            blocks[b].values[i] = static_cast<std::int8_t>(value);
        }
    }
    return blocks;
}

// Exercise 16.2 — the low halves are the first 16 weights, the high halves the last 16. A
// kernel gets 16 adjacent weights from 16 bytes with one `and` or one shift.
Vector dequantize_q4_0(const BlockQ4_0& block) {
    const auto scale = static_cast<Real>(block.scale);
    Vector weights = xt::zeros<Real>({32});
    for (std::size_t i = 0; i < 16; ++i) {
        weights(i) = scale * static_cast<Real>((block.values[i] & 15) - 8);
        weights(16 + i) = scale * static_cast<Real>((block.values[i] >> 4) - 8);
    }
    return weights;
}

// Exercise 16.3 — 32 products of at most 127 * 127 are half a million: 16 bits hold 32767.
Real dot_q8_0(const BlockQ8_0& weights, const BlockQ8_0& inputs) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < 32; ++i) sum += weights.values[i] * inputs.values[i];
    return static_cast<Real>(sum) * static_cast<Real>(weights.scale) *
           static_cast<Real>(inputs.scale);
}

// Exercise 16.4 — 16 integers divide the range into 15 steps. If all weights are equal, the
// scale is 0, and the min is the weight.
BlockQ4_1 quantize_q4_1(const Vector& weights) {
    const Real min = xt::amin(weights)(), scale = (xt::amax(weights)() - min) / 15;
    BlockQ4_1 block{scale, min, {}};
    const auto value = [&](std::size_t i) {
        return scale == 0 ? 0 : static_cast<int>(std::round((weights(i) - min) / scale));
    };
    for (std::size_t i = 0; i < 16; ++i)
        block.values[i] = static_cast<std::uint8_t>(value(i) | value(16 + i) << 4);
    return block;
}
Vector dequantize_q4_1(const BlockQ4_1& block) {
    Vector weights = xt::zeros<Real>({32});
    for (std::size_t i = 0; i < 16; ++i) {
        weights(i) = block.scale * static_cast<Real>(block.values[i] & 15) + block.min;
        weights(16 + i) = block.scale * static_cast<Real>(block.values[i] >> 4) + block.min;
    }
    return weights;
}

namespace {

// The scale of each input feature.
Vector awq_scales(const Matrix& inputs, Real alpha) {
    const Vector means = xt::mean(xt::abs(inputs), {0});
    const Real smallest = Real(1e-4) * xt::amax(means)();
    const Vector scales = xt::pow(xt::maximum(means, smallest), alpha);
    return scales / std::sqrt(xt::amax(scales)() * xt::amin(scales)());
}

}  // namespace

// Exercise 16.5 — a larger weight has a smaller relative error, and the inputs multiply the
// error. Features with large inputs therefore get large weights. If they get too large, the
// scales of their blocks grow, and the errors of the other weights, too: hence the search.
Matrix awq(const Matrix& weight, const Matrix& inputs) {
    Matrix best;
    Real smallest_error = infinity;
    for (int tenths = 0; tenths <= 10; ++tenths) {
        const Vector scales = awq_scales(inputs, static_cast<Real>(tenths) / 10);
        const Matrix restored = round_to_q4_0(weight * scales) / scales;
        const Real error = xt::sum(xt::square(matmul_blas(inputs, restored - weight)))();
        if (error < smallest_error) {
            smallest_error = error;
            best = restored;
        }
    }
    return best;
}

// Exercise 16.6 — the scale is 2.54 / 127 = 0.02.
Vector predicted_integers() { return {127, -50, 15}; }

// Exercise 16.7 — a float16 scale for 32 weights is half a bit per weight. In Q4_K, 4 + 12
// bytes for 256 weights are half a bit, too, although it has a scale and a min for each 32.
Vector predicted_bits_per_weight() { return {8.5f, 4.5f, 4.5f}; }

// Exercise 16.8 — 2 bytes, 8.5 / 8 and 4.5 / 8 bytes per weight.
Vector predicted_gigabytes() { return {16, 8.5f, 4.5f}; }

// Exercise 16.9 — small gradients add up in the weights that are not rounded, until one of them
// crosses the middle between two integers.
Matrix train_quantized(Matrix weight, const Matrix& inputs, const Matrix& targets,
                       Real learning_rate, std::size_t num_steps) {
    const Real num_outputs = static_cast<Real>(targets.size());
    for (std::size_t n = 0; n < num_steps; ++n) {
        const Matrix rounded = round_to_3_bits(weight);
        const Matrix error = matmul_transposed(inputs, rounded) - targets;  // (N, out)
        const Matrix error_by_output = xt::transpose(error);                // (out, N)
        weight -= learning_rate * 2 / num_outputs * matmul(error_by_output, inputs);
    }
    return weight;
}

}  // namespace exercise
