#include "chapters/04_rope/exercise.hpp"

#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 4.1 — predict: a head of 4 features, (1, 2, 3, 4), after RoPE at position 2. Pair 0
// rotates by 90 degrees per position, pair 1 by 45 degrees. Split halves.
Vector predicted_rotation() {
    TODO("predicted_rotation");
    // return {?, ?, ?, ?};
}

// Exercise 4.2 — predict: one pair that rotates by 30 degrees per position, the query (1, 0)
// and the key (0, 2) before RoPE. The scores (without the divisor) of: query at 5 and key at 5;
// query at 5 and key at 2; query at 105 and key at 104; query at 2 and key at 5.
Vector predicted_scores() {
    TODO("predicted_scores");
    // return {?, ?, ?, ?};
}

// Exercise 4.3 — predict: all position ids of a sequence increase by 10. Which results change?
// 1 for each that changes, 0 for each that stays the same (up to rounding): queries after RoPE;
// keys after RoPE; scores; the output of attention; the output of a variant of attention that
// applies RoPE to the values, too.
Vector predicted_changes() {
    TODO("predicted_changes");
    // return {?, ?, ?, ?, ?};
}

// Exercise 4.4 — find the bug. RoPE by Hugging Face's formula, for positions 0 to T - 1. It is
// right at position 0. At other positions, the norm of a head changes.
Tensor4 rotate_with_wide_tables(const Tensor4& states, const RotaryTable& table) {
    const std::size_t seq_len = states.shape(2), head_dim = states.shape(3);
    Matrix cos = xt::zeros<Real>({seq_len, head_dim});  // (T, D)
    Matrix sin = xt::zeros<Real>({seq_len, head_dim});  // (T, D)
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t d = 0; d < head_dim; ++d) {
            cos(t, d) = table.cos(t, d / 2);
            sin(t, d) = table.sin(t, d / 2);
        }
    return states * cos + rotate_half(states) * sin;
}

// Exercise 4.5 — find the bug. The norm of a token's whole vector stays the same, but the
// scores of a head depend on more than the distance.
Tensor4 heads_with_rope(const Tensor3& states, std::size_t num_heads, Real rope_theta) {
    const auto [batch_size, seq_len, width] = dims(states);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(width, rope_theta), seq_len);
    const Tensor4 wide = reshape(states, {batch_size, 1, seq_len, width});
    const Tensor4 rotated =
        apply_rotary_embedding(wide, table, position_ids(batch_size, seq_len));
    return split_heads(reshape(rotated, {batch_size, seq_len, width}), num_heads);
}

// Exercise 4.6 — find the bug. One step of generation: the key of the newest token is added to
// the cached keys, which are stored after RoPE. The first two tokens are right. The longer the
// text, the less it makes sense.
Tensor4 append_key(const Tensor4& cached_keys, const Tensor4& new_key,
                   const RotaryTable& table) {
    const Tensor4 keys = xt::concatenate(xt::xtuple(cached_keys, new_key), 2);
    const IdMatrix positions = position_ids(keys.shape(0), keys.shape(2));
    return apply_rotary_embedding(keys, table, positions);
}

// Exercise 4.7 — write shift_positions: the keys of a KV cache are stored after RoPE. Change
// their positions by a positive or negative offset, without knowing the positions. (Caches that
// drop old tokens do this.) Use split halves.
Tensor4 shift_positions([[maybe_unused]] const Tensor4& rotated,
                        [[maybe_unused]] const Vector& inverse_frequencies,
                        [[maybe_unused]] Id offset) {
    TODO("shift_positions");
}

// Exercise 4.8 — write split_half_to_interleaved: the inverse of interleaved_to_split_half,
// for weight and bias.
Linear split_half_to_interleaved([[maybe_unused]] const Linear& projection,
                                 [[maybe_unused]] std::size_t num_heads) {
    TODO("split_half_to_interleaved");
}

// Exercise 4.9 — write theta_for_context: the theta at which the lowest-frequency pair makes
// exactly one full rotation within the context. (ntk_theta solves a similar equation.)
Real theta_for_context([[maybe_unused]] std::size_t head_dim,
                       [[maybe_unused]] Real context_length) {
    TODO("theta_for_context");
}

}  // namespace exercise
