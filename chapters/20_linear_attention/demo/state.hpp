// The state of linear attention by hand, its forms, and how many pairs it holds.
#pragma once

#include "common/numbers/random.hpp"

namespace llm {

void words_in_a_state();
void overwriting();
void similar_keys();
void gradient_step();
void three_forms(Generator& generator);
void writes_of_a_chunk();
void capacity(Generator& generator);

}  // namespace llm
