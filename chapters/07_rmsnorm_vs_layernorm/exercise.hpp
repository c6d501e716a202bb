// Chapter 07, exercises. Write your answers into exercise.cpp; ./learn exercise 7 checks them.
#pragma once

#include "chapters/02_projections/linear.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

namespace exercise {

using namespace llm;

Matrix predicted_norms();                            // (2, 4)
Vector predicted_output_rms();                       // (2)
Vector predicted_half_outputs();                     // (2)
Matrix unit_variance(const Matrix& rows, Real eps);  // (N, C) -> (N, C)
Matrix centered(const Matrix& rows);                 // (N, C) -> (N, C)

// RMSNorm as in the published code of its authors.
Matrix original_rms_norm(const Matrix& rows,    // (N, C) -> (N, C)
                         const Vector& scale,   // (C)
                         const Vector& offset,  // (C)
                         double p, Real eps);

Matrix layer_norm_from_rms(const Matrix& rows, const LayerNorm& norm);  // (N, C) -> (N, C)

// A layer that gives the same outputs after a norm without weights as the given layer after the
// given norm.
Linear without_norm_weight(const RMSNorm& norm,    // weight (C)
                           const Linear& linear);  // weight (out, C)

}  // namespace exercise
