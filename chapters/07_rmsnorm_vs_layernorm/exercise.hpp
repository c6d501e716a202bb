// Chapter 07, exercises. Write your answers into exercise.cpp; ./learn exercise 7 checks them.
#pragma once

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

namespace exercise {

using namespace llm;

Tensor3 normalized_tokens(const Tensor3& hidden_states, Real eps);  // (B, T, C) -> (B, T, C)
Matrix rms_with_eps(const Matrix& rows, Real eps);                  // (N, C) -> (N, C)
Matrix rms_by_norm(const Matrix& rows, Real eps);                   // (N, C) -> (N, C)
Matrix unit_variance(const Matrix& centred_rows, Real eps);         // (N, C) -> (N, C)
Matrix centred(const Matrix& rows);                                 // (N, C) -> (N, C)

// The RMSNorm of its inventors' published code.
Matrix original_rms_norm(const Matrix& rows,                         // (N, C) -> (N, C)
                         const Vector& scale, const Vector& offset,  // (C) each
                         double p, Real eps);

Matrix layer_norm_from_rms(const Matrix& rows, const LayerNorm& norm);  // (N, C) -> (N, C)

// A layer that needs a norm without weights before it, where the given one needs norm.
Linear without_norm_weight(const RMSNorm& norm, const Linear& linear);  // (C) and (out, C)

}  // namespace exercise
