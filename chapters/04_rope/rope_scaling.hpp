// Chapter 04, file 2 of 2: RoPE scaling, for contexts longer than those of training.
#pragma once

#include "chapters/01_masking/config.hpp"

namespace llm {

// Position interpolation: divides every frequency by factor. Source: Chen et al., 2023.
Vector interpolate_positions(const Vector& inverse_frequencies,  // (D/2)
                             Real factor);                       // -> (D/2)

// NTK-aware scaling: the theta at which the highest frequency stays the same and the lowest is
// divided by factor. Throws ValueError unless D > 2. Source: bloc97, 2023 (in YaRN's section
// 3).
Real ntk_theta(Real rope_theta, Real factor, std::size_t head_dim);

// Llama 3.1's scaling: divides low frequencies by factor, leaves high ones as they are, and
// interpolates those between. Throws ValueError if low_freq_factor exceeds
// high_freq_factor. Source: Hugging Face, modeling_rope_utils.py,
// _compute_llama3_parameters.
Vector scale_like_llama3(const Vector& inverse_frequencies,  // (D/2)
                         const Llama3Scaling& scaling);      // -> (D/2)

// Divides each frequency by a factor of its own. Throws ValueError unless there is one factor
// per frequency. Source: ggml, ggml_rope_ext, freq_factors.
Vector divide_frequencies(const Vector& inverse_frequencies,  // (D/2)
                          const Vector& factors);             // (D/2) -> (D/2)

// The inverse frequencies of a configuration, scaled if it has a rope_scaling.
Vector rope_frequencies(const Config& config);  // (D/2)

}  // namespace llm
