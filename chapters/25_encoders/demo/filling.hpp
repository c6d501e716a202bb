// Chapter 25: an encoder that fills in hidden letters of names.
#pragma once

#include "chapters/25_encoders/demo/names.hpp"

namespace llm {

void mask_by_hand(const std::string& name, Generator& generator);
// Returns the trained model.
NameModel train_to_fill(const Names& names, std::size_t num_steps, std::uint32_t seed);
void fill_in(const NameModel& model, const std::vector<std::string>& names);
void wrong_objective(const Names& names, std::uint32_t seed);

}  // namespace llm
