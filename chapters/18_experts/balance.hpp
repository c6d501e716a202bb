// Chapter 18, file 3 of 7: keeping the load of the experts balanced.
#pragma once

#include "chapters/18_experts/mixture_of_experts.hpp"

namespace llm {

// The fraction of the N·K choices that each expert receives. Balanced: 1/E each. Throws
// ValueError if an expert does not exist, or if there are no choices.
Vector expert_load(const IdMatrix& experts,   // (N, K)
                   std::size_t num_experts);  // -> (E)

// The largest load divided by the mean load, minus 1: 0 if balanced, E/K - 1 at most. Source:
// Wang et al., 2024, "Auxiliary-Loss-Free Load Balancing", MaxVio.
double max_violation(const Vector& load);  // (E)

// A loss of the router's logits, and its gradient.
struct RouterLoss {
    double loss;
    Matrix logits_gradient;  // (N, E)
};
// The load-balancing loss E Σ_e f_e P_e: f_e is the load of expert e, and P_e its mean softmax
// probability. It is 1 if either is uniform. The load is a constant: it has no gradient. Throws
// ValueError as expert_load does. Source: Switch Transformer (Fedus et al., 2021), equations 4
// to 6; DeepSeek-V2 (2024), section 2.2.3. (Hugging Face's load_balancing_loss_func of one
// layer is K times as large.)
RouterLoss load_balancing_loss(const Matrix& router_logits,  // (N, E)
                               const IdMatrix& experts);     // (N, K)
// The same with a given load, for example that of the tokens of several machines.
RouterLoss load_balancing_loss_of_load(const Matrix& router_logits,  // (N, E)
                                       const Vector& load);          // (E)
// The mean over tokens of log²(Σ_e exp(logit_e)), which keeps logits small. Source: ST-MoE
// (Zoph et al., 2022), equation 5.
RouterLoss router_z_loss(const Matrix& router_logits);  // (N, E)

// Balance without a loss, after each training step: adds update_rate to the bias of each expert
// that received less than the mean load, and subtracts it from that of each that received more.
// Throws ValueError if the shapes differ. Source: DeepSeek-V3 (2024), section 2.1.2.
void update_correction_bias(Vector& e_score_correction_bias,  // (E)
                            const Vector& load,               // (E)
                            Real update_rate);

}  // namespace llm
