// Chapter 12: the backward passes of linear layer, embedding and dropout.
#pragma once

#include "chapters/02_projections/linear.hpp"

namespace llm {

// How to read every backward function. The loss is one number, and its gradient with respect to
// a tensor has the shape of that tensor: each element is the derivative of the loss with
// respect to that element. A backward function gets what the forward function got, and the
// gradient with respect to its output (the upstream gradient). It returns the gradient with
// respect to its input, and accumulates the gradients of its weights in a struct of the same
// type as the weights (+=, as PyTorch's .grad). N is B*T: each token is a row.

// y = x Wᵀ + b, of chapter 02.
Matrix linear_backward(const Linear& linear,
                       const Matrix& input,            // (N, in)
                       const Matrix& output_gradient,  // (N, out)
                       Linear& gradient);              // -> (N, in)
Tensor3 linear_backward(const Linear& linear,
                        const Tensor3& input,            // (B, T, in)
                        const Tensor3& output_gradient,  // (B, T, out)
                        Linear& gradient);               // -> (B, T, in)

// The embedding of chapter 09 copies row "id" of its table to each position with that id.
void embedding_backward(const IdMatrix& input_ids,       // (B, T)
                        const Tensor3& output_gradient,  // (B, T, C)
                        Matrix& gradient);               // (V, C)

// sum += leftᵀ right. Throws ShapeError if the shapes do not fit.
void accumulate_product(Matrix& sum,           // (A, B)
                        const Matrix& left,    // (N, A)
                        const Matrix& right);  // (N, B)
// sum += the sum of all rows.
void accumulate_rows(Vector& sum,          // (C)
                     const Matrix& rows);  // (N, C)

}  // namespace llm
