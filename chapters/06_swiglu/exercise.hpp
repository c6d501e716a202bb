// Chapter 06, exercises. Write your answers into exercise.cpp; ./learn exercise 6 checks them.
#pragma once

#include "chapters/06_swiglu/mlp.hpp"

namespace exercise {

using namespace llm;

// A SwiGLU MLP with the weights of Meta's checkpoints.
GatedMlp from_meta(const Matrix& w1,   // (F, C)
                   const Matrix& w2,   // (C, F)
                   const Matrix& w3);  // (F, C)

Vector predicted_product();             // (3)
Vector predicted_intermediate_sizes();  // (2)
Vector predicted_parameters();          // (2)

Tensor3 geglu(const Tensor3& gate,  // (B, T, F)
              const Tensor3& up);   // (B, T, F) -> (B, T, F)

struct Reglu {
    Tensor3 product;  // (B, T, F)
    Real density;     // the fraction of elements of the activated gate that are not 0
};
Reglu reglu(const Tensor3& gate,  // (B, T, F)
            const Tensor3& up);   // (B, T, F)

// silu(gate) * up from one fused weight: row 2f computes feature f of gate, row 2f + 1 feature
// f of up.
Tensor3 interleaved_product(const Linear& gate_up_proj,     // (2F, C)
                            const Tensor3& hidden_states);  // (B, T, C) -> (B, T, F)

Tensor3 clamped_swiglu(const Tensor3& gate,  // (B, T, F)
                       const Tensor3& up,    // (B, T, F)
                       Real limit);          // -> (B, T, F)

}  // namespace exercise
