// Chapter 12, file 2 of 8: the backward passes of linear layer, embedding and dropout.
#pragma once

#include "chapters/02_projections/linear.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// All backward functions have the same form. The loss is a scalar, and its gradient with
// respect to a tensor has the shape of that tensor: each element is the partial derivative of
// the loss with respect to that element. The arguments are the inputs (or outputs) of the
// forward function, and the gradient with respect to its output (the upstream gradient,
// PyTorch's grad_output). A backward function returns the gradient with respect to the input,
// and accumulates the gradients of the weights in a struct of the same type as the weights (+=,
// as PyTorch's .grad). N is B*T: each token is a row.

// What a forward function of training returns.
template <class Activations>
struct ForwardPass {
    Tensor3 output;           // (B, T, C)
    Activations activations;  // what the backward pass needs
};

// y = x Wᵀ + b, of chapter 02.
Matrix linear_backward(const Linear& linear,
                       const Matrix& input,            // (N, in)
                       const Matrix& output_gradient,  // (N, out)
                       Linear& gradient);              // -> (N, in)
Tensor3 linear_backward(const Linear& linear,
                        const Tensor3& input,            // (B, T, in)
                        const Tensor3& output_gradient,  // (B, T, out)
                        Linear& gradient);               // -> (B, T, in)

// The embedding of chapter 09: for each position, the row of the matrix given by the token id.
void embedding_backward(const IdMatrix& input_ids,       // (B, T)
                        const Tensor3& output_gradient,  // (B, T, C)
                        Matrix& gradient);               // (V, C)

// sum += leftᵀ right. Throws ValueError if the shapes do not match.
void accumulate_product(Matrix& sum,           // (A, B)
                        const Matrix& left,    // (N, A)
                        const Matrix& right);  // (N, B)
void accumulate_product(Matrix& sum, ConstMatrixView left, ConstMatrixView right);
// sum += the sum of all rows.
void accumulate_rows(Vector& sum,          // (C)
                     const Matrix& rows);  // (N, C)
void accumulate_rows(Vector& sum, ConstMatrixView rows);

}  // namespace llm
