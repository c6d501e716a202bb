// Chapter 16, exercises. Write your answers into exercise.cpp; ./learn exercise 16 checks them.
#pragma once

#include <span>
#include <vector>

#include "chapters/16_quantization/block_types.hpp"
#include "chapters/16_quantization/fake_quantize.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

using namespace llm;

// Quantizes a row of weights to Q8_0: weight i of a block is scale * values[i].
std::vector<BlockQ8_0> quantize_row_q8_0(std::span<const Real> weights);  // a multiple of 32

Vector dequantize_q4_0(const BlockQ4_0& block);  // (32)

// The dot product of 32 weights and 32 inputs that are both quantized.
Real dot_q8_0(const BlockQ8_0& weights, const BlockQ8_0& inputs);

// 32 weights of 4 bits with a min: weight i of the first 16 is
// scale * (low half of values[i]) + min, weight 16 + i is scale * (high half of values[i]) +
// min. (llama.cpp stores scale and min in float16.)
struct BlockQ4_1 {
    Real scale = 0, min = 0;
    std::array<std::uint8_t, 16> values{};
};
BlockQ4_1 quantize_q4_1(const Vector& weights);  // (32)
Vector dequantize_q4_1(const BlockQ4_1& block);  // (32)

// The weights after they were quantized to Q4_0 and dequantized.
inline Matrix round_to_q4_0(const Matrix& weight) {  // (out, in)
    return dequantize(quantize(weight, quantization_kernels(DType::q4_0)));
}

// Activation-aware weight quantization. Returns weights for the inputs as they are, after
// quantization to Q4_0 with scaled input features.
Matrix awq(const Matrix& weight,   // (out, in), in a multiple of 32
           const Matrix& inputs);  // (N, in): calibration inputs, not all of them 0

Vector predicted_integers();         // (3)
Vector predicted_bits_per_weight();  // (3)
Vector predicted_gigabytes();        // (3)

// The weights after rounding to the integers from -3 to 3, in blocks of 32 with one scale.
inline Matrix round_to_3_bits(const Matrix& weight) { return fake_quantize(weight, 32, 3); }

// Quantization-aware training of one linear layer: returns weights whose rounded values have a
// small squared error, averaged over all N · out outputs.
Matrix train_quantized(Matrix weight,          // (out, in)
                       const Matrix& inputs,   // (N, in)
                       const Matrix& targets,  // (N, out)
                       Real learning_rate, std::size_t num_steps);

}  // namespace exercise
