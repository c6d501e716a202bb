// Chapter 11, first part: one backward function beside each forward.
#pragma once

#include "chapters/09_full_model/model.hpp"

namespace llm {

// How to read them. The loss is one number. Its gradient with respect to a tensor has the
// tensor's shape: by how much the loss grows if that number grows a little. Each function gets
// what its forward got, and the gradient with respect to what its forward returned. It returns
// the gradient with respect to the input, and adds those of its weights to a struct of the same
// type as the weights. N is B*T, a row for every token.

// sum += leftᵀ right, in place: (N, A) and (N, B) to (A, B).
void add_product(Matrix& sum, const Matrix& left, const Matrix& right);

// y = x Wᵀ + b, of chapter 02.
Matrix linear_backward(const Linear& linear,
                       const Matrix& input,            // (N, in)
                       const Matrix& output_gradient,  // (N, out)
                       Linear& gradient);              // -> (N, in)

// Row id of the table was copied to every place where the id stands, of chapter 09.
void embedding_backward(const IdMatrix& input_ids,      // (B, T)
                        const Matrix& output_gradient,  // (N, C)
                        Matrix& table_gradient);        // (V, C)

// The norms of chapter 07.
Matrix rms_norm_backward(const RMSNorm& norm, const Matrix& input,      // (N, C)
                         const Matrix& output_gradient,                 // (N, C)
                         RMSNorm& gradient);                            // -> (N, C)
Matrix layer_norm_backward(const LayerNorm& norm, const Matrix& input,  // (N, C)
                           const Matrix& output_gradient,               // (N, C)
                           LayerNorm& gradient);                        // -> (N, C)

// The rotation of chapter 04: back by the same angle.
Tensor4 rotate_back(const Tensor4& output_gradient,  // (B, H, T, D)
                    const RotaryTable& table, const IdMatrix& positions);

// The softmax of chapter 01, from its result.
Matrix softmax_backward(const Matrix& weights,           // (T, S)
                        const Matrix& output_gradient);  // (T, S) -> (T, S), of the scores

// Grouped-query attention of chapter 05, between projections and o_proj.
struct AttentionGradient {
    Tensor4 queries;       // (B, H, T, D)
    Tensor4 keys, values;  // (B, Hkv, T, D)
};
AttentionGradient attention_backward(const Tensor4& queries,            // (B, H, T, D)
                                     const Tensor4& keys,               // (B, Hkv, T, D)
                                     const Tensor4& values,             // (B, Hkv, T, D)
                                     const Tensor4& weights,            // (B, H, T, T)
                                     const Tensor4& context_gradient);  // (B, H, T, D)

// The MLPs of chapter 06. gate and up are what the projections gave, before the activation.
Matrix gated_mlp_backward(const GatedMlp& mlp, const Matrix& input,         // (N, C)
                          const Matrix& gate, const Matrix& up,             // (N, F)
                          const Matrix& output_gradient,                    // (N, C)
                          GatedMlp& gradient);                              // -> (N, C)
Matrix mlp_backward(const Mlp& mlp, const Matrix& input, const Matrix& up,  // (N, C), (N, F)
                    const Matrix& output_gradient, Mlp& gradient);          // (N, C) -> (N, C)

// The slope of an activation of chapter 06: of relu, gelu and silu. Throws ShapeError for
// others.
Activation derivative_of(Activation activation);

}  // namespace llm
