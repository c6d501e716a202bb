#include "chapters/06_swiglu/mlp.hpp"

#include <cmath>
#include <numbers>

namespace llm {

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }

Real relu(Real x) { return x > 0 ? x : 0; }

Real gelu(Real x) {
    // Φ(x), the share of a normal distribution that lies below x.
    const Real share_below = std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2;
    return x * share_below;
}

Real gelu_tanh(Real x) {
    const Real inner =
        std::sqrt(2 / std::numbers::pi_v<Real>) * (x + Real(0.044715) * x * x * x);
    return x * (1 + std::tanh(inner)) / 2;
}

Real silu(Real x) { return x * sigmoid(x); }

Real swish(Real x, Real beta) { return x * sigmoid(beta * x); }

Real relu_derivative(Real x) { return x > 0 ? 1 : 0; }

Real gelu_derivative(Real x) {
    // (x Φ)' = Φ + x φ, where φ is the bell curve, the slope of Φ.
    const Real share_below = std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2;
    const Real bell = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>);
    return share_below + x * bell;
}

Real swish_derivative(Real x, Real beta) {
    // (x s)' = s + x s', and a sigmoid has s' = β s (1 - s).
    const Real gate = sigmoid(beta * x);
    return gate + beta * x * gate * (1 - gate);
}

Tensor3 activate(Activation activation, const Tensor3& states) {
    Tensor3 result = states;  // (B, T, F)
    for (Real& number : result) number = activation(number);
    return result;
}

Tensor3 Mlp::operator()(const Tensor3& hidden_states) const {
    const Tensor3 wide = up_proj(hidden_states);      // (B, T, F)
    const Tensor3 bent = activate(activation, wide);  // (B, T, F)
    return down_proj(bent);                           // (B, T, C)
}

Tensor3 GatedMlp::operator()(const Tensor3& hidden_states) const {
    // Two projections of the same token: one is bent into a gate, one is left as it is.
    const Tensor3 gate = gate_proj(hidden_states);  // (B, T, F)
    const Tensor3 up = up_proj(hidden_states);      // (B, T, F)

    // The gate decides, number by number, how much passes.
    const Tensor3 product = activate(activation, gate) * up;  // (B, T, F)
    return down_proj(product);                                // (B, T, C)
}

Tensor3 FusedGatedMlp::operator()(const Tensor3& hidden_states) const {
    const std::size_t width = gate_up_proj.weight.shape(0) / 2;  // F
    const Tensor3 both = gate_up_proj(hidden_states);            // (B, T, 2F)
    const Tensor3 gate = xt::view(both, xt::all(), xt::all(), xt::range(std::size_t{0}, width));
    const Tensor3 up = xt::view(both, xt::all(), xt::all(), xt::range(width, 2 * width));
    return down_proj(activate(activation, gate) * up);  // (B, T, C)
}

FusedGatedMlp fuse(const GatedMlp& mlp) {
    const Linear &gate = mlp.gate_proj, &up = mlp.up_proj;
    require(gate.weight.shape() == up.weight.shape() && !gate.bias && !up.bias,
            "fuse: gate {} and up {} must have one shape and no bias", gate.weight.shape(),
            up.weight.shape());

    // Stack the rows: a row is one output number, and it does not care about its neighbours.
    Linear gate_up_proj;
    gate_up_proj.weight = xt::concatenate(xt::xtuple(gate.weight, up.weight), 0);  // (2F, C)
    return {gate_up_proj, mlp.down_proj, mlp.activation};
}

Mlp make_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
             Activation activation, Generator& generator) {
    Mlp mlp;
    mlp.up_proj = make_linear(hidden_size, intermediate_size, with_bias, generator);
    mlp.down_proj = make_linear(intermediate_size, hidden_size, with_bias, generator);
    mlp.activation = activation;
    return mlp;
}

GatedMlp make_gated_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
                        Activation activation, Generator& generator) {
    GatedMlp mlp;
    mlp.gate_proj = make_linear(hidden_size, intermediate_size, with_bias, generator);
    mlp.down_proj = make_linear(intermediate_size, hidden_size, with_bias, generator);
    mlp.up_proj = make_linear(hidden_size, intermediate_size, with_bias, generator);
    mlp.activation = activation;
    return mlp;
}

std::size_t mlp_parameters(std::size_t hidden_size, std::size_t intermediate_size) {
    return 2 * hidden_size * intermediate_size;
}

std::size_t gated_mlp_parameters(std::size_t hidden_size, std::size_t intermediate_size) {
    return 3 * hidden_size * intermediate_size;
}

std::size_t round_up(std::size_t size, std::size_t multiple_of) {
    require(multiple_of > 0, "round_up: {} has no multiple of 0", size);
    return (size + multiple_of - 1) / multiple_of * multiple_of;
}

std::size_t llama_intermediate_size(std::size_t hidden_size, std::size_t multiple_of,
                                    double multiplier) {
    // Both steps drop the digits behind the point, as Meta's int() does.
    const std::size_t two_thirds = 2 * (4 * hidden_size) / 3;
    const auto scaled = static_cast<std::size_t>(multiplier * static_cast<double>(two_thirds));
    return round_up(scaled, multiple_of);
}

Tensor3 dropout(const Tensor3& states, Real probability, Generator& generator) {
    const auto [batch_size, seq_len, width] = dims(states);
    const Tensor4 as_one_head = reshape(states, {batch_size, 1, seq_len, width});
    return reshape(dropout(as_one_head, probability, generator), {batch_size, seq_len, width});
}

}  // namespace llm
