// The layer, what it keeps, and what it costs.
#pragma once

#include "common/numbers/random.hpp"

namespace llm {

void shapes_of_a_layer(Generator& generator);
void token_by_token(Generator& generator);
void kept_numbers();
void flops_by_length();
void words_in_a_convolution();

}  // namespace llm
