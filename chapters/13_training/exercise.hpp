// Chapter 11, exercises. Write your answers into exercise.cpp; ./learn exercise 11 checks them.
#pragma once

#include "chapters/13_training/trainer.hpp"

namespace exercise {

using namespace llm;

// As rms_norm_backward of the lesson, for the input alone.
Matrix norm_backward(const RMSNorm& norm, const Matrix& input,  // (N, C)
                     const Matrix& output_gradient);            // (N, C) -> (N, C)

// The way back of repeat_kv of chapter 05. num_key_value_groups is G = H / Hkv.
Tensor4 repeat_kv_backward(const Tensor4& output_gradient,     // (B, H, T, D)
                           std::size_t num_key_value_groups);  // -> (B, Hkv, T, D)

// Adam without weight decay, for one tensor. Both means are zeros before the first step.
struct Adam {
    Vector mean, mean_square;  // (n), of the gradients so far
    Real beta1 = Real(0.9), beta2 = Real(0.95), eps = Real(1e-8);
    std::size_t steps = 0;  // taken so far
};
void adam_step(Adam& adam, Vector& numbers, const Vector& gradient,  // (n), (n)
               Real learning_rate);

// The pieces of T tokens that begin at these places, and what follows each token.
Batch pieces_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& begins,
                std::size_t seq_len);

// Does a tensor of a checkpoint decay, with this name and so many axes?
bool decays(const std::string& name, std::size_t num_axes);

Matrix log_softmax_backward(const Matrix& log_probabilities,  // (N, V)
                            const Matrix& output_gradient);   // (N, V) -> (N, V), of the scores

Loss smoothed_cross_entropy(const Matrix& logits,     // (N, V)
                            const IdVector& targets,  // (N)
                            Real epsilon);            // 0 <= epsilon <= 1

// What a batch gave: the mean loss of its tokens, and the gradient of that mean.
struct MeanLoss {
    double loss;
    Vector gradient;  // (n), all parameters of a model in one row
    std::size_t num_tokens;
};
MeanLoss mean_of_all(const std::vector<MeanLoss>& batches);

}  // namespace exercise
