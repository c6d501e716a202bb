// Chapter 18, steps of the program: what the experts of a trained model process.
#pragma once

#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/models/family_model.hpp"

namespace llm {

void load_of_layers(const models::FamilyModel& model, const std::vector<Id>& tokens);
void words_of_experts(const models::FamilyModel& model, const Tokenizer& tokenizer,
                      const std::vector<Id>& tokens);

}  // namespace llm
