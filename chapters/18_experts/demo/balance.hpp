// Chapter 18, steps of the program: the losses of a router, dropped tokens, and short training
// runs.
#pragma once

#include <cstdint>
#include <vector>

#include "chapters/18_experts/mixture_of_experts.hpp"

namespace llm {

void losses_by_hand();
void dropped_tokens();
void collapse(const std::vector<Id>& tokens, std::size_t vocab_size, const ExpertSizes& sizes,
              Real aux_loss_coefficient, std::uint32_t seed);

}  // namespace llm
