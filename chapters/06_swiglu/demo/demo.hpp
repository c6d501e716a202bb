// Chapter 06, program: the gated MLP of the shipped model.
#pragma once

#include "chapters/06_swiglu/activations.hpp"

namespace llm {

// The gate, the activated gate, up and their product for one of five words.
void show_gates_of_words(const Activation& activation);

}  // namespace llm
