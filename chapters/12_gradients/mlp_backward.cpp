#include "chapters/12_gradients/mlp_backward.hpp"

namespace llm {

ForwardPass<MlpActivations> mlp_forward(const Mlp& mlp, const Tensor3& input) {
    MlpActivations saved;
    saved.input = input;
    saved.up = mlp.up_proj(input);                      // (B, T, F)
    saved.hidden = activate(mlp.activation, saved.up);  // (B, T, F)
    return {mlp.down_proj(saved.hidden), std::move(saved)};
}

Tensor3 mlp_backward(const Mlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient, Mlp& gradient) {
    const Tensor3 hidden_gradient =
        linear_backward(mlp.down_proj, saved.hidden, output_gradient, gradient.down_proj);
    const Tensor3 up_gradient =
        hidden_gradient * activation_derivative(mlp.activation, saved.up);
    return linear_backward(mlp.up_proj, saved.input, up_gradient, gradient.up_proj);
}

ForwardPass<MlpActivations> mlp_forward(const GatedMlp& mlp, const Tensor3& input) {
    MlpActivations saved;
    saved.input = input;
    saved.gate = mlp.gate_proj(input);                               // (B, T, F)
    saved.up = mlp.up_proj(input);                                   // (B, T, F)
    saved.hidden = activate(mlp.activation, saved.gate) * saved.up;  // (B, T, F)
    return {mlp.down_proj(saved.hidden), std::move(saved)};
}

Tensor3 mlp_backward(const GatedMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient, GatedMlp& gradient) {
    const Tensor3 hidden_gradient =
        linear_backward(mlp.down_proj, saved.hidden, output_gradient, gradient.down_proj);

    // The product rule: the gradient of each factor is the upstream gradient times the other.
    const Tensor3 up_gradient = hidden_gradient * activate(mlp.activation, saved.gate);
    const Tensor3 gate_gradient =
        hidden_gradient * saved.up * activation_derivative(mlp.activation, saved.gate);

    // Both projections have the same input: their gradients add up.
    return linear_backward(mlp.up_proj, saved.input, up_gradient, gradient.up_proj) +
           linear_backward(mlp.gate_proj, saved.input, gate_gradient, gradient.gate_proj);
}

}  // namespace llm
