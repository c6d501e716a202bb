// Chapter 06, program: the gated MLP of the shipped model.
#pragma once

namespace llm {

// The gate, the activated gate, up and their product for one of five words.
void show_gates_of_words();

}  // namespace llm
