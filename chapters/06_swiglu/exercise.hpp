// Chapter 06, exercises. Write your answers into exercise.cpp; ./learn exercise 6 checks them.
#pragma once

#include "chapters/06_swiglu/mlp.hpp"

namespace exercise {

using namespace llm;

// A SwiGLU from Meta's matrices w1 (F, C), w2 (C, F), w3 (F, C).
GatedMlp from_meta(const Matrix& w1, const Matrix& w2, const Matrix& w3);

Tensor3 gated_product(const Tensor3& gate, const Tensor3& up);  // (B, T, F) each -> (B, T, F)
std::size_t padded_width(std::size_t width, std::size_t multiple_of);
Tensor3 dropped(const Tensor3& states, Real probability, Generator& generator);  // (B, T, C)
Tensor3 geglu(const Tensor3& gate, const Tensor3& up);  // (B, T, F) each -> (B, T, F)

struct Reglu {
    Tensor3 product;  // (B, T, F)
    Real open;        // the share of its numbers that the gate let pass, 0 to 1
};
Reglu reglu(const Tensor3& gate, const Tensor3& up);  // (B, T, F) each

// silu(gate) * up from one fused weight, in which row 2f is gate f and row 2f + 1 is up f.
Tensor3 interleaved_product(const Linear& gate_up_proj,     // (2F, C)
                            const Tensor3& hidden_states);  // (B, T, C) -> (B, T, F)

// (B, T, F) each -> (B, T, F)
Tensor3 clamped_swiglu(const Tensor3& gate, const Tensor3& up, Real limit);

}  // namespace exercise
