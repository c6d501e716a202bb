// Chapter 04: the steps of the program that scaling_demo.cpp defines.
#pragma once

namespace llm {

void show_wavelengths();
void show_rope_scaling();
void show_half_precision_angles();

}  // namespace llm
