// Chapter 12, exercises. Write your answers into exercise.cpp; ./learn exercise 12 checks them.
#pragma once

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/loss.hpp"

namespace exercise {

using namespace llm;

// Predictions.
Vector predicted_chain();            // (4)
Matrix predicted_logits_gradient();  // (2, 4)
Matrix predicted_weight_gradient();  // (2, 2)
Vector predicted_score_gradient();   // (3)
Vector predicted_residual();         // (2)

// norm_backward of the lesson, for the input alone.
Matrix rms_norm_backward(const RMSNorm& norm, const Matrix& input,  // (N, C)
                         const Matrix& output_gradient);            // (N, C) -> (N, C)

// The backward pass of repeat_kv of chapter 05. num_key_value_groups is G = H / Hkv.
Tensor4 repeat_kv_backward(const Tensor4& output_gradient,     // (B, H, T, D)
                           std::size_t num_key_value_groups);  // -> (B, Hkv, T, D)

// The gradient of an embedding table, from ids of one sequence.
Matrix embedding_gradient(const IdVector& input_ids,      // (T)
                          const Matrix& output_gradient,  // (T, C)
                          std::size_t vocab_size);        // V -> (V, C)

Matrix log_softmax_backward(const Matrix& log_probabilities,  // (N, V)
                            const Matrix& output_gradient);   // (N, V) -> (N, V), of the scores

// A loss and its gradient with respect to the logits.
struct LossAndGradient {
    double loss;
    Matrix gradient;  // (N, V)
};
LossAndGradient smoothed_cross_entropy(const Matrix& logits,     // (N, V)
                                       const IdVector& targets,  // (N)
                                       Real epsilon);            // 0 <= epsilon <= 1

// The backward pass of one causal head, step by step. T queries, S >= T keys.
Matrix gradient_of_values(const Matrix& weights,             // (T, S)
                          const Matrix& context_gradient);   // (T, D) -> (S, D)
Matrix gradient_of_weights(const Matrix& values,             // (S, D)
                           const Matrix& context_gradient);  // (T, D) -> (T, S)
Matrix gradient_of_scores(const Matrix& weights,             // (T, S)
                          const Matrix& weight_gradient);    // (T, S) -> (T, S)

struct QueryKeyGradient {
    Matrix queries;  // (T, D)
    Matrix keys;     // (S, D)
};
QueryKeyGradient gradient_of_queries_and_keys(const Matrix& queries,          // (T, D)
                                              const Matrix& keys,             // (S, D)
                                              const Matrix& score_gradient);  // (T, S)

struct HeadGradient {
    Matrix queries;  // (T, D)
    Matrix keys;     // (S, D)
    Matrix values;   // (S, D)
};
HeadGradient head_attention_backward(const Matrix& queries,            // (T, D)
                                     const Matrix& keys,               // (S, D)
                                     const Matrix& values,             // (S, D)
                                     const Matrix& context_gradient);  // (T, D)

}  // namespace exercise
