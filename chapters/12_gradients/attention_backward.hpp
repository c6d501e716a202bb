// Chapter 12, file 5 of 8: forward and backward passes of the attention layer of chapter 05.
#pragma once

#include <functional>

#include "chapters/05_gqa/attention.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// Backward pass of apply_rotary_embedding of chapter 04: the rotation by the negative angle.
Tensor4 rope_backward(const Tensor4& output_gradient,  // (B, H, T, D)
                      const RotaryTable& table,        // (P, D/2)
                      const IdMatrix& position_ids);   // (B, T) -> (B, H, T, D)

// Backward pass of the softmax of chapter 01. Takes the output of the softmax, and returns the
// gradient with respect to the scores.
Matrix softmax_backward(const Matrix& weights,           // (T, S)
                        const Matrix& output_gradient);  // (T, S) -> (T, S)
Matrix softmax_backward(ConstMatrixView weights, ConstMatrixView output_gradient);

// Backward pass of apply_qk_norm_and_rope of chapter 05. Returns the gradients with respect to
// the queries and keys before QK norm and RoPE; the gradient of the norm's weights is
// accumulated.
QueriesKeysValues qk_norm_and_rope_backward(const QKNorm& qk_norm,
                                            const QueriesKeysValues& projected,
                                            const AttentionInputs& inputs,
                                            const QueriesKeysValues& output_gradient,
                                            QKNorm& gradient);

// The activations of query head h of sequence b.
struct HeadActivations {
    std::size_t b, h;
    ConstMatrixView queries, keys;  // (T, D), (S, D)
    ConstMatrixView weights;        // (T, S)
};
// From the gradient of a head's weights to that of its products queries · keysᵀ, both (T, S).
using ScoresBackward =
    std::function<Matrix(const HeadActivations& head, ConstMatrixView weight_gradient)>;
// That of `attention` of chapter 05: through the softmax and the scale 1/√D.
Matrix scores_backward(const HeadActivations& head, ConstMatrixView weight_gradient);

// Backward pass of grouped_query_attention of chapter 05. Returns the gradients with respect to
// queries, keys and values.
QueriesKeysValues grouped_query_attention_backward(
    const QueriesKeysValues& heads,   // after QK norm and RoPE
    const Tensor4& attentions,        // (B, H, T, S): the weights, before dropout
    const Tensor4& dropout_mask,      // (B, H, T, S), or empty: no dropout
    const Tensor4& context_gradient,  // (B, H, T, D)
    const ScoresBackward& head_scores_backward = scores_backward);

// The activations of an attention layer that its backward pass needs.
struct AttentionActivations {
    Tensor3 input;                // (B, T, C)
    QueriesKeysValues projected;  // split into heads
    QueriesKeysValues rotated;    // after QK norm and RoPE
    Tensor4 attentions;           // (B, H, T, T): the weights, before dropout
    Tensor4 dropout_mask;         // (B, H, T, T): 0 or 1/(1 - p); empty without dropout
    Tensor4 context;              // (B, H, T, D)
};

// Saves what grouped_query_attention returned. With a generator and a probability above 0,
// dropout is applied to the weights, and the context is computed again from the rest.
void save_attention(AttentionOutput attention, Real attention_dropout,
                    Generator* dropout_generator, AttentionActivations& saved);

// The same output as layer(input, inputs). With a generator, dropout with probability
// layer.attention_dropout is applied to the attention weights (training mode).
ForwardPass<AttentionActivations> attention_forward(
    const AttentionLayer& layer,
    const Tensor3& input,           // (B, T, C)
    const AttentionInputs& inputs,  // T positions
    Generator* dropout_generator = nullptr);
// The backward pass of project_qkv of chapter 05. Returns the gradient with respect to the
// input, (B, T, C).
Tensor3 project_qkv_backward(const AttentionLayer& layer,
                             const Tensor3& input,                      // (B, T, C)
                             const QueriesKeysValues& output_gradient,  // split into heads
                             AttentionLayer& gradient);
// Returns the gradient with respect to the input, (B, T, C).
Tensor3 attention_backward(const AttentionLayer& layer, const AttentionInputs& inputs,
                           const AttentionActivations& saved,
                           const Tensor3& output_gradient,  // (B, T, C)
                           AttentionLayer& gradient);

}  // namespace llm
