// Chapter 04, steps of the program: frequencies for longer contexts.
#pragma once

#include <string>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// How the frequencies are scaled, with the names of Hugging Face's rope_scaling, and ntk:
// NTK-aware scaling.
struct RopeScaling {
    std::string rope_type = "default";
    float factor = 8;
};
inline const std::vector<std::string> rope_types = {"default", "linear", "ntk", "llama3"};
Vector scaled_frequencies(const RopeScaling& scaling, std::size_t head_dim,
                          Real rope_theta);  // (D/2)
void show_wavelengths();
void show_rope_scaling(Real factor);
void show_half_precision_angles();

}  // namespace llm
