#include "chapters/04_rope/exercise.hpp"

#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 4.1 — find the bug. The weights come from Hugging Face, all shapes match, and the
// model generates incoherent text.
Tensor4 rotate_for_hugging_face(const Tensor4& states, const RotaryTable& table,
                                const IdMatrix& position_ids) {
    Tensor4 rotated = states;
    for (std::size_t b = 0; b < states.shape(0); ++b)
        for (std::size_t h = 0; h < states.shape(1); ++h)
            for (std::size_t t = 0; t < states.shape(2); ++t)
                for (std::size_t i = 0; i < states.shape(3) / 2; ++i) {
                    const std::size_t first = 2 * i, second = 2 * i + 1;
                    const Real x = states(b, h, t, first), y = states(b, h, t, second);
                    const Real cos = table.cos(position_ids(b, t), i);
                    const Real sin = table.sin(position_ids(b, t), i);
                    rotated(b, h, t, first) = x * cos - y * sin;
                    rotated(b, h, t, second) = x * sin + y * cos;
                }
    return rotated;
}

// Exercise 4.2 — find the bug. Pair 0 is right. The other pairs rotate too fast.
Vector rope_frequencies(std::size_t head_dim, Real rope_theta) {
    Vector frequencies = xt::zeros<Real>({head_dim / 2});
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
        const Real exponent = static_cast<Real>(i) / static_cast<Real>(head_dim);
        frequencies(i) = 1 / std::pow(rope_theta, exponent);
    }
    return frequencies;
}

// Exercise 4.3 — find the bug. One of these three tensors should stay as it is.
AttentionHeads apply_rope(const AttentionHeads& heads, const RotaryTable& table,
                          const IdMatrix& position_ids) {
    return {apply_rotary_embedding(heads.queries, table, position_ids),
            apply_rotary_embedding(heads.keys, table, position_ids),
            apply_rotary_embedding(heads.values, table, position_ids)};
}

// Exercise 4.4 — find the bug. The whole vector is rotated as if it were one head, and split
// into heads afterwards. Which frequencies do the pairs of head 1 get, and which features form
// pairs?
Tensor4 rotated_heads(const Tensor3& states, std::size_t num_heads, Real rope_theta) {
    const auto [batch_size, seq_len, width] = dims(states);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(width, rope_theta), seq_len);
    const Tensor4 one_head = reshape(states, {batch_size, 1, seq_len, width});
    const Tensor4 rotated =
        apply_rotary_embedding(one_head, table, position_ids(batch_size, seq_len));
    return split_heads(reshape(rotated, {batch_size, seq_len, width}), num_heads);
}

// Exercise 4.5 — find the bug. The first token of a text is right. Each later token is rotated
// as if it were the first.
Tensor4 rotate_next_token(const Tensor4& states, const RotaryTable& table,
                          [[maybe_unused]] std::size_t past_len) {
    const IdMatrix positions = position_ids(states.shape(0), 1);
    return apply_rotary_embedding(states, table, positions);
}

// Exercise 4.6 — write shift_positions: the keys of a KV cache are stored after RoPE. Change
// their positions by a positive or negative offset, without knowing the positions. (Caches that
// drop old tokens do this.) Use split halves.
Tensor4 shift_positions([[maybe_unused]] const Tensor4& rotated,
                        [[maybe_unused]] const Vector& inverse_frequencies,
                        [[maybe_unused]] Id offset) {
    TODO("shift_positions");
}

// Exercise 4.7 — write split_half_to_interleaved: the inverse of interleaved_to_split_half,
// for weight and bias.
Linear split_half_to_interleaved([[maybe_unused]] const Linear& projection,
                                 [[maybe_unused]] std::size_t num_heads) {
    TODO("split_half_to_interleaved");
}

// Exercise 4.8 — write theta_for_context: the theta at which the lowest-frequency pair makes
// exactly one full rotation within the context. (ntk_theta solves a similar equation.)
Real theta_for_context([[maybe_unused]] std::size_t head_dim,
                       [[maybe_unused]] Real context_length) {
    TODO("theta_for_context");
}

}  // namespace exercise
