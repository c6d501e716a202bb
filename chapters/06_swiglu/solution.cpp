#include "chapters/06_swiglu/exercise.hpp"

namespace exercise {

// Exercise 6.1 — w1 is the gate, w3 goes up, w2 goes down.
GatedMlp from_meta(const Matrix& w1, const Matrix& w2, const Matrix& w3) {
    GatedMlp mlp;
    mlp.gate_proj = {w1, std::nullopt};
    mlp.down_proj = {w2, std::nullopt};
    mlp.up_proj = {w3, std::nullopt};
    return mlp;
}

// Exercise 6.2 — the gate is bent, up is left as it is.
Tensor3 gated_product(const Tensor3& gate, const Tensor3& up) {
    return activate(silu, gate) * up;
}

// Exercise 6.3 — what is a multiple already must stay.
std::size_t padded_width(std::size_t width, std::size_t multiple_of) {
    return (width + multiple_of - 1) / multiple_of * multiple_of;
}

// Exercise 6.4 — whoever stays carries the share of those who left.
Tensor3 dropped(const Tensor3& states, Real probability, Generator& generator) {
    Tensor3 kept = states;
    for (Real& number : kept)
        number = generator.next_uniform() < probability ? 0 : number / (1 - probability);
    return kept;
}

// Exercise 6.5 — the gate.
Tensor3 geglu(const Tensor3& gate, const Tensor3& up) { return activate(gelu, gate) * up; }

// Exercise 6.6 — a gate of 0 or less is shut.
Reglu reglu(const Tensor3& gate, const Tensor3& up) {
    std::size_t open = 0;
    for (const Real number : gate)
        if (number > 0) ++open;
    return {activate(relu, gate) * up,
            static_cast<Real>(open) / static_cast<Real>(gate.size())};
}

// Exercise 6.7 — number 2f is gate f, number 2f + 1 is up f.
Tensor3 interleaved_product(const Linear& gate_up_proj, const Tensor3& hidden_states) {
    const Tensor3 both = gate_up_proj(hidden_states);  // (B, T, 2F)
    const auto [batch_size, seq_len, width] = dims(both);
    Tensor3 product = xt::zeros<Real>({batch_size, seq_len, width / 2});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t f = 0; f < width / 2; ++f)
                product(b, t, f) = silu(both(b, t, 2 * f)) * both(b, t, 2 * f + 1);
    return product;
}

// Exercise 6.8 — no lower limit for the gate: below zero a swish shuts by itself.
Tensor3 clamped_swiglu(const Tensor3& gate, const Tensor3& up, Real limit) {
    Tensor3 bent = gate, bounded = up;  // (B, T, F)
    for (Real& number : bent) number = swish(std::min(number, limit), Real(1.702));
    for (Real& number : bounded) number = std::clamp(number, -limit, limit);
    return bent * (bounded + 1);
}

}  // namespace exercise
