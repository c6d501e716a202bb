// The demos of chapter 16's program.
#pragma once

#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "common/output/show.hpp"

namespace llm {

double bits_per_weight(DType dtype);

// block.cpp; the weights are trained ones.
void eight_weights(const Matrix& weights);     // (out, in)
void scales_of_blocks(const Matrix& weights);  // (out, in)
void k_quant_block(const Matrix& weights);     // (out, in), in at least 256
void errors_of_dtypes(const Matrix& weights,   // (out, in), divisible by 256
                      Generator& generator);
void integer_dot_product(const Matrix& weights,      // (out, in)
                         const Vector& activation);  // (in)

// model.cpp
void outlier_features(const Model& model, const std::vector<Id>& ids);
void bits_and_blocks(const Model& model, const std::vector<Id>& ids);
void quantized_models(const Model& model, const std::vector<Id>& ids);
void greedy_generation(const Model& model, const Tokenizer& tokenizer,
                       const std::vector<Id>& prompt_ids, bool with_times);

}  // namespace llm
