#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/exercise.hpp"

namespace exercise {

// Exercise 4.1 — pair 0 is (1, 3), rotated by 180 degrees: (-1, -3). Pair 1 is (2, 4), rotated
// by 90 degrees: (-4, 2).
Vector predicted_rotation() { return {-1, -4, -3, 2}; }

// Exercise 4.2 — the score is the dot product of (1, 0) and (0, 2) rotated by (n - m) * 30
// degrees, so -2 sin((n - m) * 30 degrees), for n - m = 0, -3, -1 and 3.
Vector predicted_scores() { return {0, 2, 1, -2}; }

// Exercise 4.3 — queries and keys are rotated further, by the same angles, so no distance
// changes, and no score. Rotated values are averaged as they are: the output would change.
Vector predicted_changes() { return {1, 1, 0, 0, 1}; }

// Exercise 4.4 — rotate_half pairs features d and d + D/2, so both need the angle of pair d.
Tensor4 rotate_with_wide_tables(const Tensor4& states, const RotaryTable& table) {
    const std::size_t seq_len = states.shape(2), head_dim = states.shape(3);
    Matrix cos = xt::zeros<Real>({seq_len, head_dim});  // (T, D)
    Matrix sin = xt::zeros<Real>({seq_len, head_dim});  // (T, D)
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t d = 0; d < head_dim; ++d) {
            cos(t, d) = table.cos(t, d % (head_dim / 2));
            sin(t, d) = table.sin(t, d % (head_dim / 2));
        }
    return states * cos + rotate_half(states) * sin;
}

// Exercise 4.5 — split first. Each head has the same D/2 frequencies.
Tensor4 heads_with_rope(const Tensor3& states, std::size_t num_heads, Real rope_theta) {
    const auto [batch_size, seq_len, width] = dims(states);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(width / num_heads, rope_theta), seq_len);
    return apply_rotary_embedding(split_heads(states, num_heads), table,
                                  position_ids(batch_size, seq_len));
}

// Exercise 4.6 — the cached keys are rotated already. Rotate the new one only, to the position
// after theirs.
Tensor4 append_key(const Tensor4& cached_keys, const Tensor4& new_key,
                   const RotaryTable& table) {
    IdMatrix positions = position_ids(new_key.shape(0), 1);
    positions += static_cast<Id>(cached_keys.shape(2));
    const Tensor4 rotated = apply_rotary_embedding(new_key, table, positions);
    return xt::concatenate(xt::xtuple(cached_keys, rotated), 2);
}

// Exercise 4.7 — the angles of successive rotations add up: rotate every token by the angle of
// the offset.
Tensor4 shift_positions(const Tensor4& rotated, const Vector& inverse_frequencies, Id offset) {
    const Vector angles = inverse_frequencies * static_cast<Real>(offset);
    const RotaryTable table = make_rotary_table(angles, 2);  // position 1 has these angles
    const IdMatrix all_ones = xt::ones<Id>({rotated.shape(0), rotated.shape(2)});
    return apply_rotary_embedding(rotated, table, all_ones);
}

// Exercise 4.8 — swap source and target: feature i goes to 2i, feature i + D/2 to 2i + 1.
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

// Exercise 4.9 — the lowest-frequency pair rotates by theta^(-(D - 2)/D) per position. Times
// the context length this must be 2 pi. Solve for theta.
Real theta_for_context(std::size_t head_dim, Real context_length) {
    const Real dim = static_cast<Real>(head_dim);
    return std::pow(context_length / (2 * std::numbers::pi_v<Real>), dim / (dim - 2));
}

}  // namespace exercise
