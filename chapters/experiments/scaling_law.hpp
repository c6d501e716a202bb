// A scaling law, the loss as a function of the compute of training.
#pragma once

#include <vector>

#include "chapters/09_full_model/parameters.hpp"

namespace llm {

// A measured run: the FLOPs of training, and the loss on held-out text.
struct ScalingPoint {
    double compute, loss;
};

// L(C) = E + A C^-α: E is the loss that no compute removes. Source: Kaplan et al., 2020,
// equation 1.3 (with E = 0); Henighan et al., 2020, equation 1.1.
struct ScalingLaw {
    double irreducible_loss, coefficient, exponent;  // E, A, α

    double operator()(double compute) const;
};

// Least squares of ln L. For each of 1000 values of E from 0 to just below the smallest loss,
// ln(L - E) is a linear function of ln C; the E with the smallest error is taken. Throws
// ValueError for fewer than four points, or if compute or loss is not positive.
ScalingLaw fit_scaling_law(const std::vector<ScalingPoint>& points);

// The root mean square of ln(L / L(C)): 0.01 is about one percent.
double fit_error(const ScalingLaw& law, const std::vector<ScalingPoint>& points);

// The FLOPs of training with this many tokens in sequences of seq_len: the backward pass has
// twice those of the forward pass.
double training_flops(const Config& config, std::size_t seq_len, std::size_t num_tokens);

}  // namespace llm
