#include "chapters/experiments/scaling_law.hpp"

#include <algorithm>
#include <cmath>

namespace llm {

double ScalingLaw::operator()(double compute) const {
    return irreducible_loss + coefficient * std::pow(compute, -exponent);
}

double fit_error(const ScalingLaw& law, const std::vector<ScalingPoint>& points) {
    double sum = 0;
    for (const auto& [compute, loss] : points) {
        const double error = std::log(loss / law(compute));
        sum += error * error / double(points.size());
    }
    return std::sqrt(sum);
}

namespace {

// The line through the points (ln C, ln(L - E)), by least squares.
ScalingLaw fit_power_law(const std::vector<ScalingPoint>& points, double irreducible_loss) {
    const double n = double(points.size());
    double x_mean = 0, y_mean = 0, xx = 0, xy = 0;
    for (const auto& [compute, loss] : points) {
        x_mean += std::log(compute) / n;
        y_mean += std::log(loss - irreducible_loss) / n;
    }
    for (const auto& [compute, loss] : points) {
        const double x = std::log(compute) - x_mean;
        xx += x * x;
        xy += x * (std::log(loss - irreducible_loss) - y_mean);
    }
    const double slope = xy / xx;
    return {irreducible_loss, std::exp(y_mean - slope * x_mean), -slope};
}

}  // namespace

ScalingLaw fit_scaling_law(const std::vector<ScalingPoint>& points) {
    require(points.size() >= 4, "fit_scaling_law: {} points are too few, 4 are needed",
            points.size());
    double smallest = infinity;
    for (const auto& [compute, loss] : points) {
        require(compute > 0 && loss > 0, "fit_scaling_law: compute and loss must be positive");
        smallest = std::min(smallest, loss);
    }
    ScalingLaw best = fit_power_law(points, 0);
    for (int i = 1; i < 1000; ++i) {
        const ScalingLaw law = fit_power_law(points, 0.001 * i * smallest);
        if (fit_error(law, points) < fit_error(best, points)) best = law;
    }
    return best;
}

double training_flops(const Config& config, std::size_t seq_len, std::size_t num_tokens) {
    double forward = 0;
    for (std::size_t position = 0; position < seq_len; ++position)
        forward += double(flops_per_token(config, position)) / double(seq_len);
    return 3 * forward * double(num_tokens);
}

}  // namespace llm
