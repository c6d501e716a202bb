// Chapter 15, steps of the program: attention in tiles.
#pragma once

#include "common/numbers/random.hpp"

namespace llm {

void online_softmax();
void attention_in_tiles(Generator& generator);

}  // namespace llm
