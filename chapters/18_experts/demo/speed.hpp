// Chapter 18, a step of the program: the time of experts and of dense MLPs.
#pragma once

#include "common/numbers/random.hpp"

namespace llm {

void measure_speed(Generator& generator);

}  // namespace llm
