// Chapter 04: the steps of the program that are not in main.cpp.
#pragma once

#include "chapters/01_masking/config.hpp"
#include "common/numbers/random.hpp"

namespace llm {

// worked_example_demo.cpp
void rotate_one_pair();
void rotate_words();

// layouts_demo.cpp
void pairs_of_both_layouts();
void convert_between_layouts(const Config& config,
                             const Tensor3& hidden_states,  // (B, T, C)
                             Generator& generator);

// scaling_demo.cpp
void show_wavelengths();
void show_rope_scaling();
void show_half_precision_angles();

}  // namespace llm
