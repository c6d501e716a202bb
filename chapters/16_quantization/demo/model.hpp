// Chapter 16, steps of the program: quantized models.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/16_quantization/quantized_model.hpp"

namespace llm {

void outlier_features(const Model& model, const std::vector<Id>& ids);
void bits_and_blocks(const Model& model, const std::vector<Id>& ids);
void quantized_models(const Model& model, const std::vector<Id>& ids);
void greedy_generation(const Model& model, const Tokenizer& tokenizer,
                       const std::vector<Id>& prompt_ids, bool with_times);

}  // namespace llm
