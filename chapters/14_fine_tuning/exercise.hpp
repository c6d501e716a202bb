// Chapter 14, exercises. Write your answers into exercise.cpp; ./learn exercise 14 checks them.
#pragma once

#include <string>
#include <vector>

#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"

namespace exercise {

using namespace llm;

Vector predicted_mask();        // (5)
Vector predicted_parameters();  // (3)
Vector predicted_dpo();         // (3)
Vector predicted_clipping();    // (4)

// 1 where the target of the position belongs to the response, otherwise 0.
Vector response_mask(std::size_t prompt_size, std::size_t response_size);  // (T)

// The advantages of one group.
Vector advantages(const Vector& rewards);  // (group_size)

// The gradient of the clipped objective's loss, without KL penalty, with respect to the
// log-probability of one token in each of N updates.
Vector clipped_gradient(const Vector& log_probs,      // (N)
                        const Vector& old_log_probs,  // (N)
                        const Vector& advantages,     // (N)
                        Real epsilon);

// One linear layer with a low-rank adapter. W is frozen.
struct LoraLinear {
    Matrix weight;  // (out, in)
    Matrix lora_A;  // (r, in)
    Matrix lora_B;  // (out, r)
    Real scaling;   // alpha / r
};
LoraLinear add_lora(const Matrix& weight,  // (out, in)
                    const Matrix& lora_A,  // (r, in)
                    Real lora_alpha);
Matrix lora_forward(const LoraLinear& layer, const Matrix& input);  // (N, in) -> (N, out)
struct LoraGradients {
    Matrix input, lora_A, lora_B;
};
LoraGradients lora_backward(const LoraLinear& layer,
                            const Matrix& input,             // (N, in)
                            const Matrix& output_gradient);  // (N, out)
Matrix merged_weight(const LoraLinear& layer);               // (out, in)

// DPO of one pair of responses.
struct PairLoss {
    double loss, chosen_gradient, rejected_gradient;
};
PairLoss pair_loss(double policy_chosen, double policy_rejected,  // log-probabilities
                   double reference_chosen, double reference_rejected, double beta);

// GRPO of one group of B answers.
struct GroupLoss {
    double loss;
    Matrix gradient;  // (B, T): with respect to log_probs
};
GroupLoss group_loss(const Matrix& log_probs,            // (B, T)
                     const Matrix& old_log_probs,        // (B, T)
                     const Matrix& reference_log_probs,  // (B, T)
                     const Matrix& mask,                 // (B, T)
                     const Vector& rewards,              // (B)
                     Real epsilon, Real beta);

// What a user writes, for exercise 14.11.
std::string attack();

// A conversation in ChatML as tokens, up to the beginning of the answer.
std::vector<Id> encode_chat(const Tokenizer& tokenizer, const std::vector<Message>& messages);

}  // namespace exercise
