#include "chapters/06_swiglu/mlp.hpp"

namespace llm {

Tensor3 Mlp::operator()(const Tensor3& hidden_states) const {
    const Tensor3 up = up_proj(hidden_states);           // (B, T, F)
    const Tensor3 activated = activate(activation, up);  // (B, T, F)
    return down_proj(activated);                         // (B, T, C)
}

Tensor3 GatedMlp::operator()(const Tensor3& hidden_states) const {
    // Project the same input twice. The activation is applied to the gate projection only.
    const Tensor3 gate = gate_proj(hidden_states);  // (B, T, F)
    const Tensor3 up = up_proj(hidden_states);      // (B, T, F)

    // Multiply the activated gate and the up projection elementwise.
    const Tensor3 product = activate(activation, gate) * up;  // (B, T, F)
    return down_proj(product);                                // (B, T, C)
}

Tensor3 FusedGatedMlp::operator()(const Tensor3& hidden_states) const {
    const std::size_t width = gate_up_proj.weight.shape(0) / 2;  // F
    const Tensor3 gate_up = gate_up_proj(hidden_states);         // (B, T, 2F)
    const Tensor3 gate =
        xt::view(gate_up, xt::all(), xt::all(), xt::range(std::size_t{0}, width));
    const Tensor3 up = xt::view(gate_up, xt::all(), xt::all(), xt::range(width, 2 * width));
    return down_proj(activate(activation, gate) * up);  // (B, T, C)
}

FusedGatedMlp fuse(const GatedMlp& mlp) {
    const Linear &gate = mlp.gate_proj, &up = mlp.up_proj;
    require(gate.weight.shape() == up.weight.shape() && !gate.bias && !up.bias,
            "fuse: gate {} and up {} must have the same shape and no bias", gate.weight.shape(),
            up.weight.shape());

    // Concatenate the rows: each row of a weight computes one output feature.
    Linear gate_up_proj;
    gate_up_proj.weight = xt::concatenate(xt::xtuple(gate.weight, up.weight), 0);  // (2F, C)
    return {gate_up_proj, mlp.down_proj, mlp.activation};
}

Mlp make_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
             const Activation& activation, Generator& generator) {
    Mlp mlp;
    mlp.up_proj = make_linear(hidden_size, intermediate_size, with_bias, generator);
    mlp.down_proj = make_linear(intermediate_size, hidden_size, with_bias, generator);
    mlp.activation = activation;
    return mlp;
}

GatedMlp make_gated_mlp(std::size_t hidden_size, std::size_t intermediate_size, bool with_bias,
                        const Activation& activation, Generator& generator) {
    GatedMlp mlp;
    mlp.gate_proj = make_linear(hidden_size, intermediate_size, with_bias, generator);
    mlp.down_proj = make_linear(intermediate_size, hidden_size, with_bias, generator);
    mlp.up_proj = make_linear(hidden_size, intermediate_size, with_bias, generator);
    mlp.activation = activation;
    return mlp;
}

std::uint64_t mlp_parameters(std::uint64_t hidden_size, std::uint64_t intermediate_size) {
    return 2 * hidden_size * intermediate_size;
}

std::uint64_t gated_mlp_parameters(std::uint64_t hidden_size, std::uint64_t intermediate_size) {
    return 3 * hidden_size * intermediate_size;
}

std::size_t round_up(std::size_t size, std::size_t multiple_of) {
    require(multiple_of > 0, "round_up: cannot round {} up to a multiple of 0", size);
    return (size + multiple_of - 1) / multiple_of * multiple_of;
}

std::size_t llama_intermediate_size(std::size_t hidden_size, std::size_t multiple_of,
                                    double multiplier) {
    // Both steps round down, as Meta's int() does.
    const std::size_t two_thirds = 2 * (4 * hidden_size) / 3;
    const auto scaled = static_cast<std::size_t>(multiplier * static_cast<double>(two_thirds));
    return round_up(scaled, multiple_of);
}

}  // namespace llm
