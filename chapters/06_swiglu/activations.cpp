#include "chapters/06_swiglu/activations.hpp"

#include <cmath>
#include <numbers>

#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

// Φ(x), the cumulative distribution function of the standard normal distribution.
Real normal_cdf(Real x) { return std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2; }

// The constants of gelu_tanh: √(2/π), and the coefficient of x³.
const Real root_2_over_pi = std::sqrt(2 / std::numbers::pi_v<Real>);
constexpr Real cubic = Real(0.044715);

}  // namespace

Real sigmoid(Real x) { return 1 / (1 + vectorizable_exp(-x)); }

Real relu(Real x) { return x > 0 ? x : 0; }

Real gelu(Real x) { return x * normal_cdf(x); }

Real gelu_tanh(Real x) {
    return x * (1 + std::tanh(root_2_over_pi * (x + cubic * x * x * x))) / 2;
}

Real silu(Real x) { return x * sigmoid(x); }

Real swish(Real x, Real beta) { return x * sigmoid(beta * x); }

Real sigmoid_derivative(Real x) { return sigmoid(x) * (1 - sigmoid(x)); }

Real relu_derivative(Real x) { return x > 0 ? 1 : 0; }

Real gelu_derivative(Real x) {
    // The product rule: (x Φ)' = Φ + x φ, where the density φ is the derivative of Φ.
    const Real density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>);
    return normal_cdf(x) + x * density;
}

Real gelu_tanh_derivative(Real x) {
    // With t = tanh(u): (x (1 + t) / 2)' = (1 + t) / 2 + x t' / 2, and t' = (1 - t²) u'.
    const Real t = std::tanh(root_2_over_pi * (x + cubic * x * x * x));
    const Real inner_derivative = root_2_over_pi * (1 + 3 * cubic * x * x);
    return (1 + t) / 2 + x * (1 - t * t) * inner_derivative / 2;
}

Real silu_derivative(Real x) { return swish_derivative(x, 1); }

Real swish_derivative(Real x, Real beta) {
    // The product rule: (x σ(βx))' = σ + x σ', and a sigmoid has σ' = β σ (1 - σ).
    const Real sigma = sigmoid(beta * x);
    return sigma + beta * x * sigma * (1 - sigma);
}

namespace {

Tensor3 apply_to_each(Real (*function)(Real), const Tensor3& states) {
    Tensor3 result(states.shape());  // (B, T, F)
    const std::span<const Real> elements(states.data(), states.size());
    const std::span<Real> results(result.data(), result.size());
    // Llama's activation: its loops are compiled with the function inlined, and vectorized.
    if (function == silu)
        apply_elementwise<silu>(elements, results);
    else if (function == silu_derivative)
        apply_elementwise<silu_derivative>(elements, results);
    else
        std::transform(elements.begin(), elements.end(), results.begin(), function);
    return result;
}

}  // namespace

Tensor3 activate(const Activation& activation, const Tensor3& states) {
    return apply_to_each(activation.function, states);
}

Tensor3 activation_derivative(const Activation& activation, const Tensor3& states) {
    return apply_to_each(activation.derivative, states);
}

}  // namespace llm
