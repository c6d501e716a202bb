// Chapter 15, kernels: kernels that use SIMD instructions.
#pragma once

#include <span>

#include "common/tensors/dtype.hpp"
#include "common/tensors/half.hpp"
#include "common/tensors/matrix_view.hpp"

namespace llm {

// SIMD (single instruction, multiple data): a vector register holds 4, 8 or 16 floats, and one
// instruction operates on all of them. The functions of this file are compiled for the machine
// they are built on. All spans of a call must have the same size; this is not checked.

// The dot product. The products are not summed in sequential order, so the last digits may
// differ from those of a plain loop.
Real dot(std::span<const Real> a, std::span<const Real> b);

// The dot product of a row of bfloat16 weights with inputs. The weights are converted to float
// in registers and accumulated in float.
Real dot(std::span<const Bfloat16> row, std::span<const Real> inputs);

// The dot product of each row with the same vector, four rows at a time.
void dot_rows(ConstMatrixView rows,      // (N, size)
              std::span<const Real> x,   // (size)
              std::span<Real> products,  // (N)
              Update update = Update::overwrite);
void dot_rows(BasicMatrixView<const Half> rows, std::span<const Real> x,
              std::span<Real> products);

// y += Σ over n of weights[n] * rows[n].
void add_weighted_rows(std::span<const Real> weights,  // (N)
                       ConstMatrixView rows,           // (N, D)
                       std::span<Real> y);             // (D)
void add_weighted_rows(std::span<const Real> weights, BasicMatrixView<const Half> rows,
                       std::span<Real> y);

// Converts to float.
void to_float(std::span<const Half> values, std::span<Real> result);

// Rounds to the nearest float16, ties to even; NaN stays NaN. Returns the largest magnitude: if
// it is at least 65520, that element has become infinite.
Real to_half(std::span<const Real> values, std::span<Half> result);

// Starts to load memory into the caches, while other instructions are executed.
void prefetch(std::span<const std::byte> memory);

// Converts a row of weights to float.
void dequantize(std::span<const Bfloat16> row, std::span<Real> weights);

// The largest value; -inf for an empty span.
Real amax(std::span<const Real> values);

// Replaces each x by exp(scale * x - shift) and returns the sum of the results.
Real exp_and_sum(std::span<Real> values, Real scale, Real shift);

// RMSNorm (chapter 07) of one row; the output may be the same memory as the row.
void rms_norm(std::span<const Real> row, std::span<const Real> weight, Real eps,
              std::span<Real> output);

// RoPE (chapter 04) of one head, in place, with the cosines and sines of its position. Feature
// i is paired with feature i + D/2 (split halves: rotate_half in Hugging Face).
void apply_rotary_embedding(std::span<Real> head,        // (D)
                            std::span<const Real> cos,   // (D/2)
                            std::span<const Real> sin);  // (D/2)

// SwiGLU's activation (chapter 06), in place: gate = silu(gate) * up.
void silu_and_mul(std::span<Real> gate, std::span<const Real> up);

}  // namespace llm
