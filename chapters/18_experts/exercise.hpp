// Chapter 18, exercises. Write your answers into exercise.cpp; ./learn exercise 18 checks them.
#pragma once

#include "chapters/18_experts/balance.hpp"

namespace exercise {

using namespace llm;

// Routing of Mixtral: the experts of each token, and routing weights that sum to 1.
RoutedTokens route_like_mixtral(const Matrix& router_logits,       // (N, E)
                                std::size_t num_experts_per_tok);  // K

// The gradient of a router's weights: of the cross-entropy, through the routing weights, and of
// the load-balancing loss times its coefficient.
Matrix router_weight_gradient(const Linear& router,                   // (E, C)
                              const Matrix& hidden_states,            // (N, C)
                              const RoutedTokens& routed,             // by SoftmaxRouting
                              const Matrix& routing_weight_gradient,  // (N, K)
                              Real aux_loss_coefficient);             // -> (E, C)

// Routing of DeepSeek-V3 without groups and without a scaling factor.
RoutedTokens route_like_deepseek(const Matrix& router_logits,            // (N, E)
                                 const Vector& e_score_correction_bias,  // (E)
                                 std::size_t num_experts_per_tok);       // K

// Splits the features of a gated MLP evenly into experts. The sum of their outputs is that of
// the MLP. Throws ValueError unless num_experts divides F. The MLP has no biases.
std::vector<GatedMlp> split_into_experts(const GatedMlp& mlp,       // F
                                         std::size_t num_experts);  // E -> E of F/E

// Expert choice: each expert chooses the `capacity` tokens with the largest softmax
// probabilities (over experts) for it; of equal ones, the earlier token. The output of a token
// is the sum over the experts that chose it, each times its probability; 0 if none did.
Tensor3 expert_choice(const Linear& router,                  // (E, C)
                      const std::vector<GatedMlp>& experts,  // E
                      const Tensor3& hidden_states,          // (B, T, C)
                      std::size_t capacity);                 // -> (B, T, C)

Vector predicted_parameters();       // (2)
Vector predicted_routing_weights();  // (3)
Vector predicted_dropped();          // (2)

// DeepSeek-V3's sequence-wise balance loss of one sequence of T tokens, without its factor α.
RouterLoss sequence_balance_loss(const Matrix& router_logits,       // (T, E)
                                 std::size_t num_experts_per_tok);  // K

}  // namespace exercise
