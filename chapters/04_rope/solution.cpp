#include "chapters/04_rope/exercise.hpp"

#include <cmath>
#include <numbers>

namespace exercise {

// Exercise 4.1 — Hugging Face pairs number i with number i + D/2, not with its neighbour.
Tensor4 rotate_for_hugging_face(const Tensor4& states, const RotaryTable& table,
                                const IdMatrix& positions) {
    Tensor4 rotated = states;
    const std::size_t half = states.shape(3) / 2;
    for (std::size_t b = 0; b < states.shape(0); ++b)
        for (std::size_t h = 0; h < states.shape(1); ++h)
            for (std::size_t t = 0; t < states.shape(2); ++t)
                for (std::size_t i = 0; i < half; ++i) {
                    const std::size_t first = i, second = i + half;
                    const Real x = states(b, h, t, first), y = states(b, h, t, second);
                    const Real cos = table.cos(positions(b, t), i);
                    const Real sin = table.sin(positions(b, t), i);
                    rotated(b, h, t, first) = x * cos - y * sin;
                    rotated(b, h, t, second) = x * sin + y * cos;
                }
    return rotated;
}

// Exercise 4.2 — the exponent is 2i/D: it must come close to 1 for the last pair.
Vector frequencies(std::size_t head_dim, Real rope_theta) {
    Vector result = xt::zeros<Real>({head_dim / 2});
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
        const Real exponent = static_cast<Real>(2 * i) / static_cast<Real>(head_dim);
        result(i) = 1 / std::pow(rope_theta, exponent);
    }
    return result;
}

// Exercise 4.3 — values are what is said. Turning them would say something else.
AttentionInputs with_positions(const AttentionInputs& inputs, const RotaryTable& table,
                               const IdMatrix& positions) {
    return {rotate_split_half(inputs.queries, table, positions),
            rotate_split_half(inputs.keys, table, positions), inputs.values};
}

// Exercise 4.4 — split first. Every head has its own fast and slow pairs.
Tensor4 rotated_heads(const Tensor3& states, std::size_t num_heads, Real rope_theta) {
    const Tensor4 heads = split_heads(states, num_heads);
    const auto [batch_size, heads_again, seq_len, head_dim] = dims(heads);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(head_dim, rope_theta), seq_len);
    return rotate_split_half(heads, table, position_ids(batch_size, seq_len));
}

// Exercise 4.5 — the newest token stands behind the cached ones.
Tensor4 rotate_next_token(const Tensor4& states, const RotaryTable& table, std::size_t cached) {
    IdMatrix positions = position_ids(states.shape(0), 1);
    positions += static_cast<Id>(cached);
    return rotate_split_half(states, table, positions);
}

// Exercise 4.6 — rotations add up: turn everything by steps more. A negative angle turns back.
Tensor4 shift_positions(const Tensor4& rotated, const Vector& frequencies, Id steps) {
    const Vector angles = frequencies * static_cast<Real>(steps);
    const RotaryTable one_turn = make_rotary_table(angles, 2);  // position 1 is one such turn
    const IdMatrix everywhere_one = xt::ones<Id>({rotated.shape(0), rotated.shape(2)});
    return rotate_split_half(rotated, one_turn, everywhere_one);
}

// Exercise 4.7 — write where the other direction reads: place i goes to 2i, i + D/2 to 2i + 1.
Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads) {
    const std::size_t num_rows = projection.weight.shape(0);
    const std::size_t head_dim = num_rows / num_heads, half = head_dim / 2;
    Linear reordered = projection;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::size_t place = row % head_dim;
        const std::size_t target =
            row - place + (place < half ? 2 * place : 2 * (place - half) + 1);
        xt::view(reordered.weight, target) = xt::view(projection.weight, row);
        if (projection.bias) (*reordered.bias)(target) = (*projection.bias)(row);
    }
    return reordered;
}

// Exercise 4.8 — the slowest pair turns by theta^(-(D - 2)/D) a position; times the context
// that is to be 2 pi. Solve for theta.
Real theta_for_context(std::size_t head_dim, Real context_length) {
    const Real dim = static_cast<Real>(head_dim);
    return std::pow(context_length / (2 * std::numbers::pi_v<Real>), dim / (dim - 2));
}

}  // namespace exercise
