#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/exercise.hpp"

namespace exercise {

// Exercise 4.1 — Hugging Face pairs feature i with feature i + D/2, not with feature i + 1.
Tensor4 rotate_for_hugging_face(const Tensor4& states, const RotaryTable& table,
                                const IdMatrix& position_ids) {
    Tensor4 rotated = states;
    const std::size_t half = states.shape(3) / 2;
    for (std::size_t b = 0; b < states.shape(0); ++b)
        for (std::size_t h = 0; h < states.shape(1); ++h)
            for (std::size_t t = 0; t < states.shape(2); ++t)
                for (std::size_t i = 0; i < half; ++i) {
                    const std::size_t first = i, second = i + half;
                    const Real x = states(b, h, t, first), y = states(b, h, t, second);
                    const Real cos = table.cos(position_ids(b, t), i);
                    const Real sin = table.sin(position_ids(b, t), i);
                    rotated(b, h, t, first) = x * cos - y * sin;
                    rotated(b, h, t, second) = x * sin + y * cos;
                }
    return rotated;
}

// Exercise 4.2 — the exponent is 2i/D, which is close to 1 for the last pair.
Vector rope_frequencies(std::size_t head_dim, Real rope_theta) {
    Vector frequencies = xt::zeros<Real>({head_dim / 2});
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
        const Real exponent = static_cast<Real>(2 * i) / static_cast<Real>(head_dim);
        frequencies(i) = 1 / std::pow(rope_theta, exponent);
    }
    return frequencies;
}

// Exercise 4.3 — values are not rotated. Positions should influence the scores only.
AttentionHeads apply_rope(const AttentionHeads& heads, const RotaryTable& table,
                          const IdMatrix& position_ids) {
    return {apply_rotary_embedding(heads.queries, table, position_ids),
            apply_rotary_embedding(heads.keys, table, position_ids), heads.values};
}

// Exercise 4.4 — split first. Each head has the same D/2 frequencies.
Tensor4 rotated_heads(const Tensor3& states, std::size_t num_heads, Real rope_theta) {
    const auto [batch_size, seq_len, width] = dims(states);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(width / num_heads, rope_theta), seq_len);
    return apply_rotary_embedding(split_heads(states, num_heads), table,
                                  position_ids(batch_size, seq_len));
}

// Exercise 4.5 — the position of the newest token is the number of tokens before it.
Tensor4 rotate_next_token(const Tensor4& states, const RotaryTable& table,
                          std::size_t past_len) {
    IdMatrix positions = position_ids(states.shape(0), 1);
    positions += static_cast<Id>(past_len);
    return apply_rotary_embedding(states, table, positions);
}

// Exercise 4.6 — the angles of successive rotations add up: rotate every token by the angle of
// the offset.
Tensor4 shift_positions(const Tensor4& rotated, const Vector& inverse_frequencies, Id offset) {
    const Vector angles = inverse_frequencies * static_cast<Real>(offset);
    const RotaryTable table = make_rotary_table(angles, 2);  // position 1 has these angles
    const IdMatrix all_ones = xt::ones<Id>({rotated.shape(0), rotated.shape(2)});
    return apply_rotary_embedding(rotated, table, all_ones);
}

// Exercise 4.7 — swap source and target: feature i goes to 2i, feature i + D/2 to 2i + 1.
Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads) {
    const std::size_t num_rows = projection.weight.shape(0);
    const std::size_t head_dim = num_rows / num_heads, half = head_dim / 2;
    Linear reordered = projection;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::size_t d = row % head_dim;  // within its head
        const std::size_t target = row - d + (d < half ? 2 * d : 2 * (d - half) + 1);
        xt::view(reordered.weight, target) = xt::view(projection.weight, row);
        if (projection.bias) (*reordered.bias)(target) = (*projection.bias)(row);
    }
    return reordered;
}

// Exercise 4.8 — the lowest-frequency pair rotates by theta^(-(D - 2)/D) per position. Times
// the context length this must be 2 pi. Solve for theta.
Real theta_for_context(std::size_t head_dim, Real context_length) {
    const Real dim = static_cast<Real>(head_dim);
    return std::pow(context_length / (2 * std::numbers::pi_v<Real>), dim / (dim - 2));
}

}  // namespace exercise
