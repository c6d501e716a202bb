#include "chapters/18_experts/router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "common/tensors/argsort.hpp"

namespace llm {
namespace {

Matrix sigmoid_of(const Matrix& logits) {
    Matrix result = logits;  // (N, E)
    for (Real& value : result) value = 1 / (1 + std::exp(-value));
    return result;
}

// The scores by which experts are chosen, with -inf in the groups that are not. A group counts
// with the sum of its `summed` largest scores.
std::vector<Real> limit_groups(std::vector<Real> scores, const ExpertGroups& groups,
                               std::size_t summed) {
    if (groups.topk_group == groups.n_group) return scores;
    const std::size_t size = scores.size() / groups.n_group;
    std::vector<Real> group_scores;
    for (std::size_t g = 0; g < groups.n_group; ++g) {
        const auto first = scores.begin() + std::ptrdiff_t(g * size);
        std::vector<Real> of_group(first, first + std::ptrdiff_t(size));
        std::sort(of_group.begin(), of_group.end(), std::greater<>{});
        of_group.resize(std::min(summed, size));
        group_scores.push_back(std::accumulate(of_group.begin(), of_group.end(), Real(0)));
    }
    std::vector<bool> chosen(groups.n_group);
    for (const std::size_t g : argsort_descending(group_scores, groups.topk_group))
        chosen[g] = true;
    for (std::size_t e = 0; e < scores.size(); ++e)
        if (!chosen[e / size]) scores[e] = -infinity;
    return scores;
}

void check_groups(const ExpertGroups& groups, std::size_t num_experts, std::size_t count) {
    require(groups.n_group > 0 && num_experts % groups.n_group == 0 && groups.topk_group > 0 &&
                groups.topk_group <= groups.n_group,
            "route: {} of {} groups do not fit {} experts", groups.topk_group, groups.n_group,
            num_experts);
    const std::size_t group_size = num_experts / groups.n_group;
    require(count <= groups.topk_group * group_size,
            "route: {} experts per token cannot come from {} of {} groups of {} experts", count,
            groups.topk_group, groups.n_group, group_size);
}

void check(const Matrix& router_logits, std::size_t count, const Routing& routing) {
    const std::size_t num_experts = router_logits.shape(1);
    require(count > 0 && count <= num_experts, "route: {} experts per token of {}", count,
            num_experts);
    if (const auto* softmax_routing = std::get_if<SoftmaxRouting>(&routing))
        check_groups(softmax_routing->groups, num_experts, count);
    if (const auto* sigmoid = std::get_if<SigmoidRouting>(&routing)) {
        check_groups(sigmoid->groups, num_experts, count);
        require(sigmoid->e_score_correction_bias.size() == num_experts,
                "route: a correction bias of {} does not fit {} experts",
                sigmoid->e_score_correction_bias.size(), num_experts);
    }
}

// The score of each expert from which its routing weight is computed: (N, E).
Matrix scores_of(const Matrix& router_logits, const Routing& routing) {
    if (std::holds_alternative<SoftmaxRouting>(routing)) return softmax(router_logits);
    if (std::holds_alternative<TopKSoftmaxRouting>(routing)) return router_logits;
    return sigmoid_of(router_logits);
}

// The scores by which the experts of token n are chosen.
std::vector<Real> choice_scores(const Matrix& scores, std::size_t n, const Routing& routing) {
    std::vector<Real> row(scores.shape(1));
    for (std::size_t e = 0; e < row.size(); ++e) row[e] = scores(n, e);
    if (const auto* softmax_routing = std::get_if<SoftmaxRouting>(&routing))
        return limit_groups(std::move(row), softmax_routing->groups, 1);
    if (const auto* sigmoid = std::get_if<SigmoidRouting>(&routing)) {
        for (std::size_t e = 0; e < row.size(); ++e)
            row[e] += sigmoid->e_score_correction_bias(e);
        return limit_groups(std::move(row), sigmoid->groups, 2);
    }
    return row;
}

// Divide the chosen scores of a token by their sum? By which factor multiply them?
struct WeightScale {
    bool normalize;
    Real factor;
};
WeightScale weight_scale(const Routing& routing) {
    if (const auto* soft = std::get_if<SoftmaxRouting>(&routing))
        return {soft->norm_topk_prob, soft->routed_scaling_factor};
    if (const auto* sigmoid = std::get_if<SigmoidRouting>(&routing))
        return {sigmoid->norm_topk_prob, sigmoid->routed_scaling_factor};
    return {false, 1};
}

// With DeepSeek-V3's 1e-20, which only matters where all scores are 0.
Real sum_of_row(const Matrix& matrix, std::size_t n) {
    Real sum = Real(1e-20);
    for (std::size_t k = 0; k < matrix.shape(1); ++k) sum += matrix(n, k);
    return sum;
}

// The columns of the chosen experts: (N, E) -> (N, K).
Matrix gather(const Matrix& scores, const IdMatrix& experts) {
    Matrix chosen(experts.shape());
    for (std::size_t n = 0; n < chosen.shape(0); ++n)
        for (std::size_t k = 0; k < chosen.shape(1); ++k)
            chosen(n, k) = scores(n, static_cast<std::size_t>(experts(n, k)));
    return chosen;
}

// The same in reverse; other columns are 0: (N, K) -> (N, E).
Matrix scatter(const Matrix& chosen, const IdMatrix& experts, std::size_t num_experts) {
    Matrix scores = xt::zeros<Real>({chosen.shape(0), num_experts});
    for (std::size_t n = 0; n < chosen.shape(0); ++n)
        for (std::size_t k = 0; k < chosen.shape(1); ++k)
            scores(n, static_cast<std::size_t>(experts(n, k))) = chosen(n, k);
    return scores;
}

}  // namespace

RoutedTokens route(const Matrix& router_logits, std::size_t num_experts_per_tok,
                   const Routing& routing) {
    check(router_logits, num_experts_per_tok, routing);
    const Matrix scores = scores_of(router_logits, routing);  // (N, E)

    // Choose the K experts of each token.
    RoutedTokens routed{IdMatrix(std::array{router_logits.shape(0), num_experts_per_tok}), {}};
    for (std::size_t n = 0; n < scores.shape(0); ++n) {
        const auto chosen =
            argsort_descending(choice_scores(scores, n, routing), num_experts_per_tok);
        for (std::size_t k = 0; k < chosen.size(); ++k)
            routed.experts(n, k) = static_cast<Id>(chosen[k]);
    }

    // Compute the routing weights from their scores, without bias.
    routed.weights = gather(scores, routed.experts);  // (N, K)
    if (std::holds_alternative<TopKSoftmaxRouting>(routing)) {
        routed.weights = softmax(routed.weights);
        return routed;
    }
    const WeightScale scale = weight_scale(routing);
    for (std::size_t n = 0; n < routed.weights.shape(0); ++n) {
        const Real divisor = scale.normalize ? sum_of_row(routed.weights, n) : Real(1);
        for (std::size_t k = 0; k < num_experts_per_tok; ++k)
            routed.weights(n, k) *= scale.factor / divisor;
    }
    return routed;
}

Matrix route_backward(const Matrix& router_logits, const RoutedTokens& routed,
                      const Routing& routing, const Matrix& routing_weight_gradient) {
    require(routing_weight_gradient.shape() == routed.weights.shape(),
            "route_backward: a gradient of {} does not match routing weights of {}",
            routing_weight_gradient.shape(), routed.weights.shape());
    const std::size_t num_experts = router_logits.shape(1);
    if (std::holds_alternative<TopKSoftmaxRouting>(routing))
        return scatter(softmax_backward(routed.weights, routing_weight_gradient),
                       routed.experts, num_experts);

    // Weights = factor · scores / Σ scores: with c = Σ scores, d score_k = factor / c ·
    // (d weight_k - Σ_j d weight_j · score_j / c).
    const Matrix scores = scores_of(router_logits, routing);  // (N, E)
    const Matrix chosen = gather(scores, routed.experts);     // (N, K)
    const WeightScale scale = weight_scale(routing);
    Matrix chosen_gradient = routing_weight_gradient * scale.factor;  // (N, K)
    if (scale.normalize)
        for (std::size_t n = 0; n < chosen.shape(0); ++n) {
            const Real sum = sum_of_row(chosen, n);
            Real weighted = 0;
            for (std::size_t k = 0; k < chosen.shape(1); ++k)
                weighted += chosen_gradient(n, k) * chosen(n, k) / sum;
            for (std::size_t k = 0; k < chosen.shape(1); ++k)
                chosen_gradient(n, k) = (chosen_gradient(n, k) - weighted) / sum;
        }
    const Matrix score_gradient = scatter(chosen_gradient, routed.experts, num_experts);

    // Scores = softmax(logits) or sigmoid(logits).
    if (std::holds_alternative<SoftmaxRouting>(routing))
        return softmax_backward(scores, score_gradient);
    return score_gradient * scores * (Real(1) - scores);
}

}  // namespace llm
