// Chapter 18, file 1 of 7 — How does a model know more than it computes?
#pragma once

#include <variant>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// E experts in n_group groups of equal size; the experts of a token come from topk_group of
// them (DeepSeek, whose groups are on different machines). 1 of 1: no limit.
struct ExpertGroups {
    std::size_t n_group = 1, topk_group = 1;
};

// How a router turns the logits of a token into the K experts that process it and their routing
// weights. The K largest are chosen.

// Softmax over all experts. norm_topk_prob: the K weights are divided by their sum. Source:
// Mixtral (Jiang et al., 2024), Qwen3-MoE: normalized; DeepSeek-V2 (2024): not normalized, but
// multiplied by routed_scaling_factor, and a group counts with its largest weight.
struct SoftmaxRouting {
    bool norm_topk_prob = true;
    Real routed_scaling_factor = 1;
    ExpertGroups groups = {};
};
// Softmax over the K chosen logits. Source: gpt-oss (OpenAI, 2025).
struct TopKSoftmaxRouting {};
// A sigmoid for each expert. The bias is added for the choice only: training adjusts it to
// balance the load without an auxiliary loss. A group counts with the sum of its two largest
// scores. Source: DeepSeek-V3 (2024), section 2.1.2.
struct SigmoidRouting {
    Vector e_score_correction_bias;  // (E)
    bool norm_topk_prob = true;
    Real routed_scaling_factor = 1;
    ExpertGroups groups = {};
};
// A sigmoid that multiplies the input of the expert instead of its output. Source: Llama 4,
// modeling_llama4.py.
struct InputSigmoidRouting {};
using Routing =
    std::variant<SoftmaxRouting, TopKSoftmaxRouting, SigmoidRouting, InputSigmoidRouting>;

// The experts of N tokens, and their routing weights.
struct RoutedTokens {
    IdMatrix experts;  // (N, K): of equal scores, the expert with the lower index comes first
    Matrix weights;    // (N, K)
};
// Throws ValueError unless K is 1 to E, the groups divide E, the bias has E elements, and the
// chosen groups have K experts.
RoutedTokens route(const Matrix& router_logits,      // (N, E)
                   std::size_t num_experts_per_tok,  // K
                   const Routing& routing);

// Backward pass: the gradient with respect to the logits. The choice of experts is a constant.
Matrix route_backward(const Matrix& router_logits,  // (N, E)
                      const RoutedTokens& routed, const Routing& routing,
                      const Matrix& routing_weight_gradient);  // (N, K) -> (N, E)

}  // namespace llm
