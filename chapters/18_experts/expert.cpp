#include "chapters/18_experts/expert.hpp"

#include <algorithm>

#include "chapters/12_gradients/linear_backward.hpp"

namespace llm {

ForwardPass<MlpActivations> mlp_forward(const ClampedGatedMlp& mlp, const Tensor3& input) {
    MlpActivations saved;
    saved.input = input;
    saved.gate = mlp.gate_proj(input);  // (B, T, F)
    saved.up = mlp.up_proj(input);      // (B, T, F)

    // Clamp the gate from above only: large negative gates are 0 after the sigmoid anyway.
    saved.hidden = Tensor3(saved.gate.shape());  // (B, T, F)
    for (std::size_t i = 0; i < saved.hidden.size(); ++i) {
        const Real gate = std::min(saved.gate.data()[i], mlp.limit);
        const Real up = std::clamp(saved.up.data()[i], -mlp.limit, mlp.limit);
        saved.hidden.data()[i] = (up + 1) * swish(gate, mlp.alpha);
    }
    return {mlp.down_proj(saved.hidden), std::move(saved)};
}

Tensor3 mlp_backward(const ClampedGatedMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient, ClampedGatedMlp& gradient) {
    const Tensor3 hidden_gradient =
        linear_backward(mlp.down_proj, saved.hidden, output_gradient, gradient.down_proj);

    // A number that was clamped does not depend on its input.
    Tensor3 gate_gradient = xt::zeros<Real>(hidden_gradient.shape());  // (B, T, F)
    Tensor3 up_gradient = gate_gradient;                               // (B, T, F)
    for (std::size_t i = 0; i < hidden_gradient.size(); ++i) {
        const Real upstream = hidden_gradient.data()[i];
        const Real gate = std::min(saved.gate.data()[i], mlp.limit);
        const Real up = std::clamp(saved.up.data()[i], -mlp.limit, mlp.limit);
        if (up == saved.up.data()[i]) up_gradient.data()[i] = upstream * swish(gate, mlp.alpha);
        if (gate == saved.gate.data()[i])
            gate_gradient.data()[i] = upstream * (up + 1) * swish_derivative(gate, mlp.alpha);
    }
    return linear_backward(mlp.up_proj, saved.input, up_gradient, gradient.up_proj) +
           linear_backward(mlp.gate_proj, saved.input, gate_gradient, gradient.gate_proj);
}

ForwardPass<MlpActivations> expert_forward(const Expert& expert, const Tensor3& input) {
    return std::visit([&](const auto& mlp) { return mlp_forward(mlp, input); }, expert);
}

Tensor3 expert_backward(const Expert& expert, const MlpActivations& saved,
                        const Tensor3& output_gradient, Expert& gradient) {
    return std::visit(
        [&]<class Mlp>(const Mlp& mlp) {
            return mlp_backward(mlp, saved, output_gradient, std::get<Mlp>(gradient));
        },
        expert);
}

}  // namespace llm
