// Chapter 06, steps of the program: the gates of five words.
#pragma once

#include "chapters/06_swiglu/activations.hpp"

namespace llm {

// The gate, the activated gate, up and their product for one of five words.
void show_gates_of_words(const Activation& activation);

}  // namespace llm
