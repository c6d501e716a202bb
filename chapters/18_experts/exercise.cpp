#include "chapters/18_experts/exercise.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "common/system/exercise.hpp"

namespace exercise {
namespace {

// The indices of the largest elements of row n.
std::vector<std::size_t> largest_of_row(const Matrix& matrix, std::size_t n,
                                        std::size_t count) {
    std::vector<std::size_t> order(matrix.shape(1));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return matrix(n, a) > matrix(n, b); });
    order.resize(count);
    return order;
}

RoutedTokens empty_routing(std::size_t num_tokens, std::size_t num_experts_per_tok) {
    const std::array shape{num_tokens, num_experts_per_tok};
    return {IdMatrix(shape), Matrix(shape)};
}

}  // namespace

// Exercise 18.1 — find the bug. A published Mixtral loads and writes fluent text, but its
// perplexity is higher than the published one. The chosen experts are right.
RoutedTokens route_like_mixtral(const Matrix& router_logits, std::size_t num_experts_per_tok) {
    const Matrix probabilities = softmax(router_logits);  // (N, E)
    RoutedTokens routed = empty_routing(router_logits.shape(0), num_experts_per_tok);
    for (std::size_t n = 0; n < router_logits.shape(0); ++n) {
        const auto chosen = largest_of_row(probabilities, n, num_experts_per_tok);
        for (std::size_t k = 0; k < num_experts_per_tok; ++k) {
            routed.experts(n, k) = static_cast<Id>(chosen[k]);
            routed.weights(n, k) = probabilities(n, chosen[k]);
        }
    }
    // The routing weights of a token sum to 1.
    routed.weights = softmax(routed.weights);
    return routed;
}

// Exercise 18.2 — find the bug. The log of a training run shows the load-balancing loss. It
// rises from 1 to 3 and stays there, whatever its coefficient is.
Matrix router_weight_gradient(const Linear& router, const Matrix& hidden_states,
                              const RoutedTokens& routed, const Matrix& routing_weight_gradient,
                              Real aux_loss_coefficient) {
    const Matrix logits = router(hidden_states);  // (N, E)
    Linear gradient = router;
    gradient.weight.fill(0);

    // Of the cross-entropy, through the routing weights.
    Matrix logits_gradient =  // (N, E)
        route_backward(logits, routed, SoftmaxRouting{}, routing_weight_gradient);
    linear_backward(router, hidden_states, logits_gradient, gradient);

    // Of the load-balancing loss.
    const RouterLoss balancing = load_balancing_loss(logits, routed.experts);
    logits_gradient += aux_loss_coefficient * balancing.logits_gradient;
    return gradient.weight;
}

// Exercise 18.3 — find the bug. A DeepSeek-V3 with random weights equals the reference. The
// published one does not: its outputs are too large for some tokens and too small for others.
RoutedTokens route_like_deepseek(const Matrix& router_logits,
                                 const Vector& e_score_correction_bias,
                                 std::size_t num_experts_per_tok) {
    Matrix scores(router_logits.shape());  // (N, E)
    for (std::size_t n = 0; n < scores.shape(0); ++n)
        for (std::size_t e = 0; e < scores.shape(1); ++e)
            scores(n, e) =
                1 / (1 + std::exp(-router_logits(n, e))) + e_score_correction_bias(e);

    RoutedTokens routed = empty_routing(router_logits.shape(0), num_experts_per_tok);
    for (std::size_t n = 0; n < scores.shape(0); ++n) {
        const auto chosen = largest_of_row(scores, n, num_experts_per_tok);
        Real sum = 0;
        for (const std::size_t e : chosen) sum += scores(n, e);
        for (std::size_t k = 0; k < num_experts_per_tok; ++k) {
            routed.experts(n, k) = static_cast<Id>(chosen[k]);
            routed.weights(n, k) = scores(n, chosen[k]) / sum;
        }
    }
    return routed;
}

// Exercise 18.4 — write split_into_experts. A dense MLP becomes a mixture of fine-grained
// experts that computes the same, as long as every token uses all of them with routing weights
// of 1.
std::vector<GatedMlp> split_into_experts([[maybe_unused]] const GatedMlp& mlp,
                                         [[maybe_unused]] std::size_t num_experts) {
    TODO("split_into_experts");
}

// Exercise 18.5 — write expert_choice from an empty function: routing, dispatch, experts and
// combination. Here the experts choose tokens, so that the load is always balanced.
Tensor3 expert_choice([[maybe_unused]] const Linear& router,
                      [[maybe_unused]] const std::vector<GatedMlp>& experts,
                      [[maybe_unused]] const Tensor3& hidden_states,
                      [[maybe_unused]] std::size_t capacity) {
    TODO("expert_choice");
}

// Exercise 18.6 — predict: a dense MLP has 12 million parameters. A mixture of experts has 16
// experts of a quarter of its intermediate size, of which each token uses 4, and one shared
// expert of the same size as an expert. How many million parameters do its experts have in
// total, and how many of them are active? (Without the router.)
Vector predicted_parameters() {
    TODO("predicted_parameters");
    // return {?, ?};
}

// Exercise 18.7 — predict: the router logits of a token are ln 4, ln 2, ln 1 and ln 1. What is
// the larger routing weight in Mixtral (K = 2), in DeepSeek-V2-Lite (K = 2, softmax without
// normalization), and the routing weight in Llama 4 (K = 1, sigmoid)?
Vector predicted_routing_weights() {
    TODO("predicted_routing_weights");
    // return {?, ?, ?};
}

// Exercise 18.8 — predict: 64 tokens choose 2 of 8 experts each, with a capacity factor
// of 1.25. How many of the 128 choices are dropped if the load is balanced, and how many if all
// tokens choose the same two experts?
Vector predicted_dropped() {
    TODO("predicted_dropped");
    // return {?, ?};
}

// Exercise 18.9 — write sequence_balance_loss. The scores s of a token are sigmoids of its
// logits, and its experts those with the K largest. The loss is the sum over e of f_e P_e: f_e
// is E / (K T) times the number of tokens that chose expert e, and P_e the mean over the tokens
// of s_e divided by the sum of the token's scores. f is a constant. Return the gradient with
// respect to the logits, too.
RouterLoss sequence_balance_loss([[maybe_unused]] const Matrix& router_logits,
                                 [[maybe_unused]] std::size_t num_experts_per_tok) {
    TODO("sequence_balance_loss");
}

}  // namespace exercise
