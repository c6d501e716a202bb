#include "chapters/04_rope/exercise.hpp"

#include <cmath>
#include <numbers>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 4.1 — find the bug. The weights come from Hugging Face, every shape fits, and the
// model writes nonsense.
Tensor4 rotate_for_hugging_face(const Tensor4& states, const RotaryTable& table,
                                const IdMatrix& positions) {
    Tensor4 rotated = states;
    for (std::size_t b = 0; b < states.shape(0); ++b)
        for (std::size_t h = 0; h < states.shape(1); ++h)
            for (std::size_t t = 0; t < states.shape(2); ++t)
                for (std::size_t i = 0; i < states.shape(3) / 2; ++i) {
                    const std::size_t first = 2 * i, second = 2 * i + 1;
                    const Real x = states(b, h, t, first), y = states(b, h, t, second);
                    const Real cos = table.cos(positions(b, t), i);
                    const Real sin = table.sin(positions(b, t), i);
                    rotated(b, h, t, first) = x * cos - y * sin;
                    rotated(b, h, t, second) = x * sin + y * cos;
                }
    return rotated;
}

// Exercise 4.2 — find the bug. Pair 0 is right. The others turn too fast.
Vector frequencies(std::size_t head_dim, Real rope_theta) {
    Vector result = xt::zeros<Real>({head_dim / 2});
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
        const Real exponent = static_cast<Real>(i) / static_cast<Real>(head_dim);
        result(i) = 1 / std::pow(rope_theta, exponent);
    }
    return result;
}

// Exercise 4.3 — find the bug. One of these three should stay as it is.
AttentionInputs with_positions(const AttentionInputs& inputs, const RotaryTable& table,
                               const IdMatrix& positions) {
    return {rotate_split_half(inputs.queries, table, positions),
            rotate_split_half(inputs.keys, table, positions),
            rotate_split_half(inputs.values, table, positions)};
}

// Exercise 4.4 — find the bug. The whole vector is rotated as if it were one head, and split
// afterwards. What speeds do the pairs of head 1 get, and who is paired with whom?
Tensor4 rotated_heads(const Tensor3& states, std::size_t num_heads, Real rope_theta) {
    const auto [batch_size, seq_len, width] = dims(states);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(width, rope_theta), seq_len);
    const Tensor4 one_head = reshape(states, {batch_size, 1, seq_len, width});
    const Tensor4 rotated =
        rotate_split_half(one_head, table, position_ids(batch_size, seq_len));
    return split_heads(reshape(rotated, {batch_size, seq_len, width}), num_heads);
}

// Exercise 4.5 — find the bug. The first token of a text is right. From the second one on, the
// model believes that every new token is the first.
Tensor4 rotate_next_token(const Tensor4& states, const RotaryTable& table,
                          [[maybe_unused]] std::size_t cached) {
    const IdMatrix positions = position_ids(states.shape(0), 1);
    return rotate_split_half(states, table, positions);
}

// Exercise 4.6 — write shift_positions: keys in a cache are rotated already. Move them by some
// steps, forward or backward, without knowing their positions. (Caches that drop old tokens do
// this.) Split halves.
Tensor4 shift_positions([[maybe_unused]] const Tensor4& rotated,
                        [[maybe_unused]] const Vector& frequencies, [[maybe_unused]] Id steps) {
    TODO("shift_positions");
}

// Exercise 4.7 — write split_half_to_interleaved: the inverse of interleaved_to_split_half,
// for weight and bias.
Linear split_half_to_interleaved([[maybe_unused]] const Linear& projection,
                                 [[maybe_unused]] std::size_t num_heads) {
    TODO("split_half_to_interleaved");
}

// Exercise 4.8 — write theta_for_context: the theta at which the slowest pair makes exactly one
// full turn within the context. (ntk_theta solves a similar equation.)
Real theta_for_context([[maybe_unused]] std::size_t head_dim,
                       [[maybe_unused]] Real context_length) {
    TODO("theta_for_context");
}

}  // namespace exercise
