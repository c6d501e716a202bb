// Chapter 18, file 2 of 7: an MLP of many experts, of which each token uses a few.
#pragma once

#include <functional>
#include <optional>

#include "chapters/18_experts/expert.hpp"
#include "chapters/18_experts/router.hpp"

namespace llm {

// The pairs of token and expert, sorted by expert, so that the tokens of an expert are adjacent
// rows of a matrix. M = N·K. Pairs of the same expert keep the order of their tokens.
struct Dispatch {
    std::vector<std::size_t> tokens;     // (M): the token of each row
    std::vector<std::size_t> slots;      // (M): which of its K experts the row belongs to
    std::vector<std::size_t> first_row;  // (E + 1): rows first_row[e] to first_row[e + 1] - 1
};
// Throws ValueError if an expert does not exist.
Dispatch dispatch_tokens(const IdMatrix& experts,   // (N, K)
                         std::size_t num_experts);  // E

// The number of tokens that an expert accepts: N·K/E, times the capacity factor, rounded up.
// Throws ValueError unless the factor is above 0. Source: Switch Transformer (Fedus et al.,
// 2021), equation 3; Megatron-LM, get_capacity.
std::size_t expert_capacity(std::size_t num_choices,  // N·K
                            std::size_t num_experts, double capacity_factor);
// Keeps the first `capacity` rows of each expert. A token of a dropped row goes without that
// expert: the residual stream alone carries it on.
Dispatch drop_over_capacity(const Dispatch& dispatch, std::size_t capacity);

// Copies the hidden state of each row's token.
Matrix gather_tokens(const Matrix& hidden_states,  // (N, C)
                     const Dispatch& dispatch);    // -> (M, C)
// For each token, the sum of its K rows, each multiplied by its routing weight.
Matrix combine_experts(const Matrix& expert_outputs,   // (M, C)
                       const Matrix& routing_weights,  // (N, K)
                       const Dispatch& dispatch);      // -> (N, C)

// A mixture of experts instead of the MLP of a block, with experts for all tokens if there are
// any (shared experts: DeepSeek, Llama 4). Source: Hugging Face, modeling_mixtral.py,
// modeling_deepseek_v3.py.
struct MixtureOfExperts {
    Linear router;                        // (E, C)
    std::vector<Expert> experts;          // E
    std::optional<GatedMlp> shared;       // intermediate size: that of all shared experts
    std::size_t num_experts_per_tok = 2;  // K
    Routing routing = SoftmaxRouting{};
    // Of training: tokens over the capacity of an expert are dropped. none: no token is
    // dropped.
    std::optional<double> capacity_factor = std::nullopt;
    // (1, C). The output of the shared expert is multiplied by the sigmoid of this projection
    // of the token. none: it is not.
    std::optional<Linear> shared_gate = std::nullopt;

    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

// The sizes of the mixtures of experts, under Hugging Face's names. Without experts, the MLP is
// dense.
struct ExpertSizes {
    std::size_t num_experts = 0;            // E
    std::size_t num_experts_per_tok = 0;    // K
    std::size_t moe_intermediate_size = 0;  // F of each expert
    std::size_t n_shared_experts = 0;       // for all tokens, as one MLP of n·F
    // The width of that MLP, if it is another.
    std::optional<std::size_t> shared_expert_intermediate_size = std::nullopt;

    std::size_t shared_width() const {
        return shared_expert_intermediate_size.value_or(n_shared_experts *
                                                        moe_intermediate_size);
    }
};
// The activations of a mixture of experts that its backward pass needs.
struct MoeActivations {
    Matrix input;          // (N, C)
    Matrix router_logits;  // (N, E)
    RoutedTokens routed;
    Dispatch dispatch;
    std::vector<MlpActivations> experts;  // E; empty for an expert without tokens
    Matrix expert_outputs;                // (M, C): before the routing weights
    MlpActivations shared;
    Tensor3 shared_output;  // (B, T, C): before its gate; empty without one
    // (N, E): that of losses that balance the load, which set it before the backward pass.
    std::optional<Matrix> router_logits_gradient;
};
// Applies each expert to its rows of saved.dispatch, and sets saved.experts and
// saved.expert_outputs. Throws ValueError unless these are the rows of E experts. (Where some
// experts are on other machines, moe_forward calls another function.)
void apply_experts(const MixtureOfExperts& moe,
                   const Matrix& rows,  // (M, C)
                   MoeActivations& saved);
// Returns the gradient of the rows, (M, C).
Matrix experts_backward(const MixtureOfExperts& moe, const MoeActivations& saved,
                        const Matrix& output_gradient,  // (M, C)
                        MixtureOfExperts& gradient);

// With a capacity factor, tokens over the capacity are dropped.
ForwardPass<MoeActivations> moe_forward(
    const MixtureOfExperts& moe,
    const Tensor3& input,  // (B, T, C)
    std::optional<double> capacity_factor = std::nullopt,
    const std::function<decltype(apply_experts)>& apply = apply_experts);
// Returns the gradient with respect to the input, (B, T, C), through experts and router.
Tensor3 moe_backward(
    const MixtureOfExperts& moe, const MoeActivations& saved,
    const Tensor3& output_gradient,  // (B, T, C)
    MixtureOfExperts& gradient,
    const std::function<decltype(experts_backward)>& backward = experts_backward);

}  // namespace llm
