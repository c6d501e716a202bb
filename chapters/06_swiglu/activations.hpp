// Chapter 06, file 2 of 2: activation functions and their derivatives.
#pragma once

#include <string_view>

#include "common/tensors/tensor.hpp"

namespace llm {

Real sigmoid(Real x);    // 1 / (1 + e^-x), between 0 and 1
Real relu(Real x);       // max(x, 0)
Real gelu(Real x);       // x Φ(x), Φ: the standard normal CDF (Hendrycks and Gimpel, 2016)
Real gelu_tanh(Real x);  // the tanh approximation in the same paper; GPT-2 and Gemma use it
Real silu(Real x);       // x sigmoid(x)
Real swish(Real x, Real beta);  // x sigmoid(βx) (Ramachandran et al., 2017); silu has β = 1

// Their derivatives, for the backward pass.
Real sigmoid_derivative(Real x);
Real relu_derivative(Real x);  // 1 above 0, else 0 (also at 0, as in PyTorch)
Real gelu_derivative(Real x);
Real gelu_tanh_derivative(Real x);
Real silu_derivative(Real x);
Real swish_derivative(Real x, Real beta);

// An activation function and its derivative. The name is the value of hidden_act in a Hugging
// Face configuration.
struct Activation {
    std::string_view name;
    Real (*function)(Real x);
    Real (*derivative)(Real x);
};
inline constexpr Activation Sigmoid{"sigmoid", sigmoid, sigmoid_derivative};
inline constexpr Activation ReLU{"relu", relu, relu_derivative};
inline constexpr Activation GELU{"gelu", gelu, gelu_derivative};
inline constexpr Activation GELUTanh{"gelu_pytorch_tanh", gelu_tanh, gelu_tanh_derivative};
inline constexpr Activation SiLU{"silu", silu, silu_derivative};

// Apply the activation function, or its derivative, elementwise.
Tensor3 activate(const Activation& activation, const Tensor3& states);  // (B, T, F)
Tensor3 activation_derivative(const Activation& activation,
                              const Tensor3& states);  // (B, T, F)

}  // namespace llm
