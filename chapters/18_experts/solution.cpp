#include "chapters/18_experts/exercise.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/linear_backward.hpp"

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

// Exercise 18.1 — the sum of the chosen probabilities divides them. A second softmax takes them
// for logits: the choice stays right, but all routing weights come close to 1/K.
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
    for (std::size_t n = 0; n < routed.weights.shape(0); ++n) {
        Real sum = 0;
        for (std::size_t k = 0; k < num_experts_per_tok; ++k) sum += routed.weights(n, k);
        for (std::size_t k = 0; k < num_experts_per_tok; ++k) routed.weights(n, k) /= sum;
    }
    return routed;
}

// Exercise 18.2 — both gradients arrive at the logits before the router's backward pass. Added
// after it, the one of the load-balancing loss reaches no weight.
Matrix router_weight_gradient(const Linear& router, const Matrix& hidden_states,
                              const RoutedTokens& routed, const Matrix& routing_weight_gradient,
                              Real aux_loss_coefficient) {
    const Matrix logits = router(hidden_states);  // (N, E)
    Linear gradient = router;
    gradient.weight.fill(0);

    const RouterLoss balancing = load_balancing_loss(logits, routed.experts);
    const Matrix logits_gradient =  // (N, E)
        route_backward(logits, routed, SoftmaxRouting{}, routing_weight_gradient) +
        aux_loss_coefficient * balancing.logits_gradient;
    linear_backward(router, hidden_states, logits_gradient, gradient);
    return gradient.weight;
}

// Exercise 18.3 — the bias decides the choice only; the routing weights use the scores without
// it. Before training, all biases are 0, so that random weights cannot show the mistake.
RoutedTokens route_like_deepseek(const Matrix& router_logits,
                                 const Vector& e_score_correction_bias,
                                 std::size_t num_experts_per_tok) {
    Matrix scores(router_logits.shape()), biased(router_logits.shape());  // (N, E)
    for (std::size_t n = 0; n < scores.shape(0); ++n)
        for (std::size_t e = 0; e < scores.shape(1); ++e) {
            scores(n, e) = 1 / (1 + std::exp(-router_logits(n, e)));
            biased(n, e) = scores(n, e) + e_score_correction_bias(e);
        }

    RoutedTokens routed = empty_routing(router_logits.shape(0), num_experts_per_tok);
    for (std::size_t n = 0; n < scores.shape(0); ++n) {
        const auto chosen = largest_of_row(biased, n, num_experts_per_tok);
        Real sum = 0;
        for (const std::size_t e : chosen) sum += scores(n, e);
        for (std::size_t k = 0; k < num_experts_per_tok; ++k) {
            routed.experts(n, k) = static_cast<Id>(chosen[k]);
            routed.weights(n, k) = scores(n, chosen[k]) / sum;
        }
    }
    return routed;
}

// Exercise 18.4 — a feature has a row of gate_proj and up_proj, and a column of down_proj. The
// MLP's output is a sum over its features, so parts of them can be added.
std::vector<GatedMlp> split_into_experts(const GatedMlp& mlp, std::size_t num_experts) {
    const std::size_t F = mlp.gate_proj.weight.shape(0);
    require(num_experts > 0 && F % num_experts == 0,
            "split_into_experts: {} experts do not divide {} features", num_experts, F);
    std::vector<GatedMlp> experts;
    for (std::size_t e = 0; e < num_experts; ++e) {
        const std::size_t first = e * F / num_experts, end = (e + 1) * F / num_experts;
        experts.push_back(
            {{xt::view(mlp.gate_proj.weight, xt::range(first, end)), std::nullopt},
             {xt::view(mlp.up_proj.weight, xt::range(first, end)), std::nullopt},
             {xt::view(mlp.down_proj.weight, xt::all(), xt::range(first, end)), std::nullopt},
             mlp.activation});
    }
    return experts;
}

// Exercise 18.5 — the probabilities are over experts, the choice is over tokens.
Tensor3 expert_choice(const Linear& router, const std::vector<GatedMlp>& experts,
                      const Tensor3& hidden_states, std::size_t capacity) {
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    const std::size_t num_tokens = batch_size * seq_len;
    const Matrix rows = reshape(hidden_states, {num_tokens, hidden_size});  // (N, C)
    const Matrix probabilities = softmax(router(rows));                     // (N, E)
    const Matrix by_expert = xt::transpose(probabilities);                  // (E, N)
    Tensor3 output = xt::zeros<Real>(hidden_states.shape());
    for (std::size_t e = 0; e < experts.size(); ++e) {
        // Gather the tokens of the expert, apply it, and add its output to them.
        const auto chosen = largest_of_row(by_expert, e, std::min(capacity, num_tokens));
        Tensor3 input(std::array{std::size_t{1}, chosen.size(), hidden_size});
        for (std::size_t i = 0; i < chosen.size(); ++i)
            for (std::size_t c = 0; c < hidden_size; ++c) input(0, i, c) = rows(chosen[i], c);
        const Tensor3 expert_output = experts[e](input);
        for (std::size_t i = 0; i < chosen.size(); ++i)
            for (std::size_t c = 0; c < hidden_size; ++c)
                output.data()[chosen[i] * hidden_size + c] +=
                    probabilities(chosen[i], e) * expert_output(0, i, c);
    }
    return output;
}

// Exercise 18.6 — each expert has 3 million parameters: 17 of them in total, 4 and the shared
// one active.
Vector predicted_parameters() { return {51, 15}; }

// Exercise 18.7 — 4 / (4 + 2); 4 / (4 + 2 + 1 + 1); 1 / (1 + e^-ln 4) = 4 / 5.
Vector predicted_routing_weights() { return {Real(4) / 6, Real(0.5), Real(0.8)}; }

// Exercise 18.8 — the capacity is 128 / 8 · 1.25 = 20. Two experts accept 40 of 128.
Vector predicted_dropped() { return {0, 88}; }

// Exercise 18.9 — with p = s / Σ s, the derivative of Σ_e f_e p_e with respect to s_e is
// (f_e - Σ f p) / Σ s, and that of s_e with respect to its logit is s_e (1 - s_e).
RouterLoss sequence_balance_loss(const Matrix& router_logits, std::size_t num_experts_per_tok) {
    const auto [seq_len, num_experts] = dims(router_logits);
    Matrix scores = router_logits;  // (T, E)
    for (Real& score : scores) score = 1 / (1 + std::exp(-score));

    Vector load = xt::zeros<Real>({num_experts});  // (E): f
    const Real share =
        static_cast<Real>(num_experts) / static_cast<Real>(num_experts_per_tok * seq_len);
    for (std::size_t t = 0; t < seq_len; ++t)
        for (const std::size_t e : largest_of_row(scores, t, num_experts_per_tok))
            load(e) += share;

    RouterLoss result{0, xt::zeros<Real>(router_logits.shape())};
    for (std::size_t t = 0; t < seq_len; ++t) {
        Real total = 0, weighted = 0;
        for (std::size_t e = 0; e < num_experts; ++e) {
            total += scores(t, e);
            weighted += load(e) * scores(t, e);
        }
        const Real mean = weighted / total;  // Σ f p
        result.loss += static_cast<double>(mean) / static_cast<double>(seq_len);
        for (std::size_t e = 0; e < num_experts; ++e)
            result.logits_gradient(t, e) = scores(t, e) * (1 - scores(t, e)) *
                                           (load(e) - mean) /
                                           (total * static_cast<Real>(seq_len));
    }
    return result;
}

}  // namespace exercise
