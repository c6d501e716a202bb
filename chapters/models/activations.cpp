#include "chapters/models/activations.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace llm::models {
namespace {

Real quick_gelu(Real x) { return swish(x, Real(1.702)); }
Real quick_gelu_derivative(Real x) { return swish_derivative(x, Real(1.702)); }

// So et al., "Primer", 2021.
Real relu2(Real x) { return relu(x) * relu(x); }
Real relu2_derivative(Real x) { return 2 * relu(x); }

Real relu6(Real x) { return std::min(relu(x), Real(6)); }
Real relu6_derivative(Real x) { return x > 0 && x < 6 ? 1 : 0; }

Real leaky_relu(Real x) { return x > 0 ? x : Real(0.01) * x; }
Real leaky_relu_derivative(Real x) { return x > 0 ? 1 : Real(0.01); }

// x tanh(ln(1 + e^x)) (Misra, 2019).
Real mish(Real x) { return x * std::tanh(std::log1p(std::exp(-std::abs(x))) + relu(x)); }
Real mish_derivative(Real x) {
    const Real t = std::tanh(std::log1p(std::exp(-std::abs(x))) + relu(x));
    return t + x * (1 - t * t) * sigmoid(x);
}

Real tanh_of(Real x) { return std::tanh(x); }
Real tanh_derivative(Real x) { return 1 - std::tanh(x) * std::tanh(x); }

Real linear_of(Real x) { return x; }
Real linear_derivative(Real) { return 1; }

Real gelu_10(Real x) { return std::clamp(gelu(x), Real(-10), Real(10)); }
Real gelu_10_derivative(Real x) { return gelu(x) < 10 ? gelu_derivative(x) : 0; }

// The normal CDF with mean 0.707107 and deviation 0.282095 (Ma et al., "Mega", 2022).
Real laplace(Real x) {
    return Real(0.5) *
           (1 + std::erf((x - Real(0.707107)) / Real(0.282095 * std::numbers::sqrt2)));
}
Real laplace_derivative(Real x) {
    const Real z = (x - Real(0.707107)) / Real(0.282095);
    return std::exp(-z * z / 2) / Real(0.282095 * std::sqrt(2 * std::numbers::pi));
}

}  // namespace

const std::map<std::string, Activation>& named_activations() {
    static const std::map<std::string, Activation> named = {
        {"silu", SiLU},
        {"swish", SiLU},
        {"gelu", GELU},
        {"gelu_python", GELU},
        {"gelu_new", GELUTanh},
        {"gelu_pytorch_tanh", GELUTanh},
        {"gelu_python_tanh", GELUTanh},
        {"gelu_fast", GELUTanh},
        {"gelu_accurate", GELUTanh},
        {"relu", ReLU},
        {"sigmoid", Sigmoid},
        {"quick_gelu", {"quick_gelu", quick_gelu, quick_gelu_derivative}},
        {"relu2", {"relu2", relu2, relu2_derivative}},
        {"relu6", {"relu6", relu6, relu6_derivative}},
        {"leaky_relu", {"leaky_relu", leaky_relu, leaky_relu_derivative}},
        {"mish", {"mish", mish, mish_derivative}},
        {"tanh", {"tanh", tanh_of, tanh_derivative}},
        {"linear", {"linear", linear_of, linear_derivative}},
        {"gelu_10", {"gelu_10", gelu_10, gelu_10_derivative}},
        {"laplace", {"laplace", laplace, laplace_derivative}}};
    return named;
}

}  // namespace llm::models
