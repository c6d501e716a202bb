#include "chapters/18_experts/balance.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/attention_backward.hpp"

namespace llm {

Vector expert_load(const IdMatrix& experts, std::size_t num_experts) {
    require(experts.size() > 0, "expert_load: there are no choices in {}", experts.shape());
    Vector load = xt::zeros<Real>({num_experts});
    for (const Id expert : experts) {
        require(expert >= 0 && expert < static_cast<Id>(num_experts),
                "expert_load: there is no expert {} of {}", expert, num_experts);
        load(static_cast<std::size_t>(expert)) += 1 / static_cast<Real>(experts.size());
    }
    return load;
}

double max_violation(const Vector& load) {
    require(load.size() > 0, "max_violation: there are no experts");
    double sum = 0;
    for (const Real part : load) sum += double(part);
    return double(*std::max_element(load.begin(), load.end())) * double(load.size()) / sum - 1;
}

RouterLoss load_balancing_loss(const Matrix& router_logits, const IdMatrix& experts) {
    require(experts.shape(0) == router_logits.shape(0),
            "load_balancing_loss: experts of {} do not match logits of {}", experts.shape(),
            router_logits.shape());
    return load_balancing_loss_of_load(router_logits,
                                       expert_load(experts, router_logits.shape(1)));
}

RouterLoss load_balancing_loss_of_load(const Matrix& router_logits, const Vector& load) {
    const auto [num_tokens, num_experts] = dims(router_logits);
    const Matrix probabilities = softmax(router_logits);  // (N, E)

    // E Σ_e f_e · (1/N) Σ_n p_ne: each probability has the factor E f_e / N.
    const Real scale = static_cast<Real>(num_experts) / static_cast<Real>(num_tokens);
    double loss = 0;
    Matrix probability_gradient(probabilities.shape());  // (N, E)
    for (std::size_t n = 0; n < num_tokens; ++n)
        for (std::size_t e = 0; e < num_experts; ++e) {
            probability_gradient(n, e) = scale * load(e);
            loss += double(probability_gradient(n, e) * probabilities(n, e));
        }
    return {loss, softmax_backward(probabilities, probability_gradient)};
}

RouterLoss router_z_loss(const Matrix& router_logits) {
    const auto [num_tokens, num_experts] = dims(router_logits);
    const Matrix probabilities = softmax(router_logits);  // (N, E)
    RouterLoss result{0, Matrix(router_logits.shape())};
    for (std::size_t n = 0; n < num_tokens; ++n) {
        // log Σ exp(x) = x_e - log p_e for every e; the most likely one is exact.
        std::size_t best = 0;
        for (std::size_t e = 1; e < num_experts; ++e)
            if (router_logits(n, e) > router_logits(n, best)) best = e;
        const Real log_sum_exp = router_logits(n, best) - std::log(probabilities(n, best));
        result.loss += double(log_sum_exp * log_sum_exp) / double(num_tokens);

        // The derivative of log Σ exp(x) is the softmax.
        for (std::size_t e = 0; e < num_experts; ++e)
            result.logits_gradient(n, e) =
                2 * log_sum_exp * probabilities(n, e) / static_cast<Real>(num_tokens);
    }
    return result;
}

void update_correction_bias(Vector& bias, const Vector& load, Real update_rate) {
    require(bias.shape() == load.shape(),
            "update_correction_bias: a bias of {} does not match a load of {}", bias.shape(),
            load.shape());
    Real mean = 0;
    for (const Real part : load) mean += part / static_cast<Real>(load.size());
    for (std::size_t e = 0; e < bias.size(); ++e) {
        if (load(e) < mean) bias(e) += update_rate;
        if (load(e) > mean) bias(e) -= update_rate;
    }
}

}  // namespace llm
