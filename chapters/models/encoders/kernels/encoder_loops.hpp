// Kernels of encoders: norms and activations in vector registers.
#pragma once

#include <span>

#include "chapters/06_swiglu/activations.hpp"

namespace llm::models {

// LayerNorm (chapter 07) of one row; the output may be the same memory as the row. All sizes
// are C, which is not checked; an empty bias is none.
void layer_norm(std::span<const Real> row, std::span<const Real> weight,
                std::span<const Real> bias, Real eps, std::span<Real> output);

// Applies an activation in place: GELU, its approximation with tanh and SiLU in registers,
// others one element after another. GELU differs by at most 1e-6 from chapter 06's. Source:
// Abramowitz and Stegun, formula 7.1.26, for erf.
void activate_row(const Activation& activation, std::span<Real> values);

// values *= factors, elementwise.
void multiply_row(std::span<Real> values, std::span<const Real> factors);

}  // namespace llm::models
