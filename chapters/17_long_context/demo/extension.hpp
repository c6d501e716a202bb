// Chapter 17, steps of the program: RoPE beyond the context of training.
#pragma once

#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

void frequencies_of_pairs(const Config& config, std::size_t factor);
void loss_beyond_the_context(const Model& model, const std::vector<Id>& tokens,
                             std::size_t factor, std::size_t num_sequences);

}  // namespace llm
