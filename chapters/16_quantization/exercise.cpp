#include "chapters/16_quantization/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 16.1 — find the bug. Most rows have small quantization errors. In a row with one
// large weight, almost all other weights become 0.
std::vector<BlockQ8_0> quantize_row_q8_0(std::span<const Real> weights) {
    std::vector<BlockQ8_0> blocks(weights.size() / 32);
    Real absmax = 0;
    for (const Real weight : weights) absmax = std::max(absmax, std::abs(weight));
    const Real scale = absmax / 127;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        blocks[b].scale = Half(scale);
        for (std::size_t i = 0; i < 32; ++i) {
            const Real value = scale == 0 ? 0 : std::round(weights[32 * b + i] / scale);
            blocks[b].values[i] = static_cast<std::int8_t>(value);
        }
    }
    return blocks;
}

// Exercise 16.2 — find the bug. Mean, standard deviation and largest weight of each block are
// right. A model that is loaded this way generates random tokens.
Vector dequantize_q4_0(const BlockQ4_0& block) {
    const auto scale = static_cast<Real>(block.scale);
    Vector weights = xt::zeros<Real>({32});
    for (std::size_t i = 0; i < 16; ++i) {
        weights(2 * i) = scale * static_cast<Real>((block.values[i] & 15) - 8);
        weights(2 * i + 1) = scale * static_cast<Real>((block.values[i] >> 4) - 8);
    }
    return weights;
}

// Exercise 16.3 — find the bug. The dot product is correct if a block has one large weight and
// 31 small ones. If all 32 are of similar size, it is wrong, often with the wrong sign.
Real dot_q8_0(const BlockQ8_0& weights, const BlockQ8_0& inputs) {
    std::int16_t sum = 0;
    for (std::size_t i = 0; i < 32; ++i)
        sum = static_cast<std::int16_t>(sum + weights.values[i] * inputs.values[i]);
    return static_cast<Real>(sum) * static_cast<Real>(weights.scale) *
           static_cast<Real>(inputs.scale);
}

// Exercise 16.4 — write quantize_q4_1 and dequantize_q4_1. The smallest weight of the block
// becomes 0, the largest 15. Symmetric types such as Q4_0 waste half of their integers on a
// block whose weights are all positive; this one does not.
BlockQ4_1 quantize_q4_1([[maybe_unused]] const Vector& weights) { TODO("quantize_q4_1"); }
Vector dequantize_q4_1([[maybe_unused]] const BlockQ4_1& block) { TODO("dequantize_q4_1"); }

// Exercise 16.5 — write awq. Multiply the weights of input feature j by s_j, round them to Q4_0
// and divide them by s_j again. With a mean magnitude a_j of the feature in the inputs,
// s_j = a_j^alpha, divided by sqrt(largest s * smallest s). If a_j is less than 1e-4 of the
// largest mean magnitude, use 1e-4 of it. Of alpha = 0, 0.1, ..., 1, take the one with the
// smallest sum of squared errors of the outputs, inputs * weightᵀ. Source: AWQ, auto_scale.py.
Matrix awq([[maybe_unused]] const Matrix& weight, [[maybe_unused]] const Matrix& inputs) {
    TODO("awq");
}

// Exercise 16.6 — predict: the weights 2.54, -1 and 0.3, followed by 29 zeros, are a block of
// Q8_0. Which integers are stored for the first three?
Vector predicted_integers() {
    TODO("predicted_integers");
    // return {?, ?, ?};
}

// Exercise 16.7 — predict: how many bits per weight, with scales, have Q8_0 and Q4_0 (blocks of
// 32 weights with a float16 scale) and Q4_K (blocks of 256 weights with two float16 numbers and
// 12 bytes of scales and mins)?
Vector predicted_bits_per_weight() {
    TODO("predicted_bits_per_weight");
    // return {?, ?, ?};
}

// Exercise 16.8 — predict: how many GB (10^9 bytes) has a model of 8 billion weights in
// bfloat16, in Q8_0 and in Q4_0?
Vector predicted_gigabytes() {
    TODO("predicted_gigabytes");
    // return {?, ?, ?};
}

// Exercise 16.9 — write train_quantized. Rounding has the derivative 0 almost everywhere, so
// nothing would be trained. The straight-through estimator takes it as 1: each step rounds the
// weights, computes the gradient of the loss with respect to the rounded weights, and subtracts
// learning_rate times it from the weights that are not rounded.
Matrix train_quantized([[maybe_unused]] Matrix weight, [[maybe_unused]] const Matrix& inputs,
                       [[maybe_unused]] const Matrix& targets,
                       [[maybe_unused]] Real learning_rate,
                       [[maybe_unused]] std::size_t num_steps) {
    TODO("train_quantized");
}

}  // namespace exercise
