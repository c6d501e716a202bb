// Chapter 15, file 1 of 10: a matrix product in five variants.
#pragma once

#include "chapters/09_full_model/model.hpp"

namespace llm {

// inputs * weightᵀ, element (i, j) = Σ over k of inputs(i, k) weight(j, k), in five variants
// that differ only in speed. All throw ValueError, which states both shapes, if the sizes of
// the last axes differ.
using Matmul = Matrix (*)(const Matrix& inputs,                        // (N, in)
                          const Matrix& weight);                       // (out, in) -> (N, out)
Matrix matmul_ikj(const Matrix& inputs, const Matrix& weight);         // loops over i, k, j
Matrix matmul_ijk(const Matrix& inputs, const Matrix& weight);         // loops over i, j, k
Matrix matmul_expression(const Matrix& inputs, const Matrix& weight);  // an xtensor expression
Matrix matmul_simd(const Matrix& inputs, const Matrix& weight);        // SIMD
Matrix matmul_blas(const Matrix& inputs, const Matrix& weight);        // BLAS (gemm)

// Chapter 09's forward pass; all linear layers and the head are computed with this matmul.
Tensor3 forward_with(Matmul matmul, const Model& model,
                     const IdMatrix& input_ids);  // (B, T) -> (B, T, V)

}  // namespace llm
