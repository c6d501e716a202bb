// Chapter 04: the steps of the program that are not in main.cpp.
#pragma once

#include <string>
#include <vector>

#include "chapters/01_masking/config.hpp"
#include "common/numbers/random.hpp"

namespace llm {

// worked_example.cpp
void rotate_one_pair();

// The positions of "said", whose query is rotated, and of "LORD", whose key is. With
// show_pairs, also shows the rotated pairs of both.
struct WordPositions {
    std::size_t query = 3, key = 2;
    bool show_pairs = false;
};
void rotate_words(const WordPositions& positions);

// layouts.cpp
void pairs_of_both_layouts();
void convert_between_layouts(const Config& config,
                             const Vector& frequencies,     // (D/2)
                             const Tensor3& hidden_states,  // (B, T, C)
                             Generator& generator);

// scaling.cpp. How the frequencies are scaled, with the names of Hugging Face's
// rope_scaling, and ntk: NTK-aware scaling.
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
