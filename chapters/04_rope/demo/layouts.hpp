// Chapter 04, steps of the program: interleaved pairs and split halves.
#pragma once

#include "chapters/01_masking/config.hpp"
#include "common/numbers/random.hpp"

namespace llm {

void pairs_of_both_layouts();
void convert_between_layouts(const Config& config,
                             const Vector& frequencies,     // (D/2)
                             const Tensor3& hidden_states,  // (B, T, C)
                             Generator& generator);

}  // namespace llm
