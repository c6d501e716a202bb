// Chapter 19, steps of the program: latent attention by hand, its shapes, and its two orders of
// computation.
#pragma once

#include "common/numbers/random.hpp"

namespace llm {

void absorb_by_hand();
void rope_between();
void shapes_of_a_layer(Generator& generator);
void two_orders(Generator& generator);
void grouped_as_latent(Generator& generator);

}  // namespace llm
