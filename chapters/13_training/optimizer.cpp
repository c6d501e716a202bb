#include "chapters/13_training/optimizer.hpp"

#include <cmath>
#include <numeric>

#include "common/system/parallel.hpp"

namespace llm {

double grad_norm(const std::vector<Parameter>& gradients) {
    std::vector<double> sums_of_squares(gradients.size());
    parallel_for(gradients.size(), [&](std::size_t p) {
        for (const Real g : gradients[p].values) sums_of_squares[p] += double(g) * double(g);
    });
    return std::sqrt(std::accumulate(sums_of_squares.begin(), sums_of_squares.end(), 0.0));
}

double clip_grad_norm(const std::vector<Parameter>& gradients, double max_grad_norm) {
    const double norm = grad_norm(gradients);
    clip_grads_with_norm(gradients, max_grad_norm, norm);
    return norm;
}

void clip_grads_with_norm(const std::vector<Parameter>& gradients, double max_grad_norm,
                          double norm) {
    const Real scale = static_cast<Real>(max_grad_norm / (norm + 1e-6));
    if (scale < 1)
        for (const Parameter& gradient : gradients)
            for (Real& g : gradient.values) g *= scale;
}

bool has_weight_decay(const Parameter& parameter) { return parameter.shape.size() >= 2; }

void AdamW::reset(const std::vector<Parameter>& parameters) {
    step_count = 0;
    exp_avg.clear();
    for (const Parameter& parameter : parameters)
        exp_avg.emplace_back(parameter.values.size(), Real(0));
    exp_avg_sq = exp_avg;
}

namespace {

void check_parameters(const AdamW& optimizer, const std::vector<Parameter>& parameters,
                      const std::vector<Parameter>& gradients) {
    require(parameters.size() == gradients.size(), "AdamW: {} parameters, but {} gradients",
            parameters.size(), gradients.size());
    require(optimizer.exp_avg.size() == parameters.size(),
            "AdamW: {} parameters, but {} in the steps before", parameters.size(),
            optimizer.exp_avg.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const auto& [name, shape, values] = parameters[p];
        require(gradients[p].name == name && gradients[p].shape == shape,
                "AdamW: parameter {} of {}, but gradient {} of {}", name, shape,
                gradients[p].name, gradients[p].shape);
        require(optimizer.exp_avg[p].size() == values.size(),
                "AdamW: {} has another size than in the steps before", name);
    }
}

}  // namespace

void AdamW::step(const std::vector<Parameter>& parameters,
                 const std::vector<Parameter>& gradients, Real learning_rate) {
    if (exp_avg.empty()) reset(parameters);
    check_parameters(*this, parameters, gradients);
    ++step_count;

    // Bias correction: both moving averages start at 0, so they are too small by a factor.
    const double n = static_cast<double>(step_count);
    const Real bias_correction1 = static_cast<Real>(1 - std::pow(double(beta1), n));
    const Real bias_correction2_sqrt =
        static_cast<Real>(std::sqrt(1 - std::pow(double(beta2), n)));

    parallel_for(parameters.size(), [&](std::size_t p) {
        // Decoupled weight decay: it is not added to the gradient.
        const Real decay =
            has_weight_decay(parameters[p]) ? 1 - learning_rate * weight_decay : 1;
        for (std::size_t i = 0; i < parameters[p].values.size(); ++i) {
            const Real g = gradients[p].values[i];
            Real& m = exp_avg[p][i];
            Real& v = exp_avg_sq[p][i];
            m = beta1 * m + (1 - beta1) * g;
            v = beta2 * v + (1 - beta2) * g * g;
            const Real denominator = std::sqrt(v) / bias_correction2_sqrt + eps;
            Real& parameter = parameters[p].values[i];
            parameter =
                decay * parameter - learning_rate * (m / bias_correction1) / denominator;
        }
    });
}

}  // namespace llm
