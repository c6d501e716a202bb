// Chapter 18, steps of the program: from router logits to outputs, by hand; published routers
// and sizes.
#pragma once

#include "common/numbers/random.hpp"

namespace llm {

void route_by_hand();
void published_routers();
void dispatch_by_hand(Generator& generator);
void published_sizes();

}  // namespace llm
