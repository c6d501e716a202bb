#include "chapters/06_swiglu/exercise.hpp"

#include <algorithm>

namespace exercise {

// Exercise 6.1 — w1 is gate_proj, w3 is up_proj, w2 is down_proj.
GatedMlp from_meta(const Matrix& w1, const Matrix& w2, const Matrix& w3) {
    GatedMlp mlp;
    mlp.gate_proj = {w1, std::nullopt};
    mlp.down_proj = {w2, std::nullopt};
    mlp.up_proj = {w3, std::nullopt};
    return mlp;
}

// Exercise 6.2 — silu(0) is 0. For large positive x, silu(x) is almost x; for large negative x
// it is almost 0.
Vector predicted_product() { return {0, 20, 0}; }

// Exercise 6.3 — 8 * 768 / 3 = 2048 is a multiple of 256 already; 8 * 1000 / 3 = 2666 becomes
// 42 * 64 = 2688.
Vector predicted_intermediate_sizes() { return {2048, 2688}; }

// Exercise 6.4 — three matrices of 96 * 256 and two of 96 * 384: with F = 8/3 C both MLPs have
// the same number of weights.
Vector predicted_parameters() { return {3 * 96 * 256, 2 * 96 * 384}; }

// Exercise 6.5 — the activation is applied to gate.
Tensor3 geglu(const Tensor3& gate, const Tensor3& up) { return activate(GELU, gate) * up; }

// Exercise 6.6 — ReLU maps every gate of 0 or less to 0.
Reglu reglu(const Tensor3& gate, const Tensor3& up) {
    const Tensor3 activated_gate = activate(ReLU, gate);  // (B, T, F)
    const auto zeros = std::count(activated_gate.begin(), activated_gate.end(), Real(0));
    return {activated_gate * up, 1 - static_cast<Real>(zeros) / static_cast<Real>(gate.size())};
}

// Exercise 6.7 — feature 2f is feature f of gate, feature 2f + 1 is feature f of up.
Tensor3 interleaved_product(const Linear& gate_up_proj, const Tensor3& hidden_states) {
    const Tensor3 gate_up = gate_up_proj(hidden_states);  // (B, T, 2F)
    const auto [batch_size, seq_len, width] = dims(gate_up);
    Tensor3 product = xt::zeros<Real>({batch_size, seq_len, width / 2});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t f = 0; f < width / 2; ++f)
                product(b, t, f) = silu(gate_up(b, t, 2 * f)) * gate_up(b, t, 2 * f + 1);
    return product;
}

// Exercise 6.8 — gate needs no lower limit, because swish is close to 0 for large negative x.
Tensor3 clamped_swiglu(const Tensor3& gate, const Tensor3& up, Real limit) {
    Tensor3 activated_gate = gate, clamped_up = up;  // (B, T, F)
    for (Real& element : activated_gate) element = swish(std::min(element, limit), Real(1.702));
    for (Real& element : clamped_up) element = std::clamp(element, -limit, limit);
    return activated_gate * (clamped_up + 1);
}

}  // namespace exercise
