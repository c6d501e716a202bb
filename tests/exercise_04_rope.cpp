#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

RotaryTable table_for(std::size_t head_dim, std::size_t num_positions) {
    return make_rotary_table(inverse_frequencies(head_dim, 10000), num_positions);
}

}  // namespace

TEST_CASE("4.1 find the bug: RoPE for Hugging Face's weights") {
    Generator generator(1);
    const Tensor4 states = randn({2, 3, 5, 8}, generator);
    const IdMatrix positions = position_ids(2, 5);
    INFO("feature i and feature i + D/2 form pair i");
    CHECK_CLOSE(rotate_for_hugging_face(states, table_for(8, 5), positions),
                apply_rotary_embedding(states, table_for(8, 5), positions), 1e-6);
}

TEST_CASE("4.2 find the bug: frequencies that fall too slowly") {
    INFO("two pairs and theta 10000: the second rotates 100 times slower than the first");
    CHECK_CLOSE(rope_frequencies(4, 10000), (Vector{1, 0.01f}), 1e-6);
    CHECK_CLOSE(rope_frequencies(128, 500000), inverse_frequencies(128, 500000), 1e-6);
}

TEST_CASE("4.3 find the bug: one tensor too many is rotated") {
    Generator generator(2);
    const AttentionHeads heads{randn({1, 2, 3, 4}, generator), randn({1, 2, 3, 4}, generator),
                               randn({1, 2, 3, 4}, generator)};
    const RotaryTable table = table_for(4, 3);
    const IdMatrix positions = position_ids(1, 3);
    const AttentionHeads rotated = apply_rope(heads, table, positions);
    INFO("queries and keys are rotated, values are not");
    CHECK_CLOSE(rotated.queries, apply_rotary_embedding(heads.queries, table, positions), 1e-6);
    CHECK_CLOSE(rotated.keys, apply_rotary_embedding(heads.keys, table, positions), 1e-6);
    CHECK_CLOSE(rotated.values, heads.values, 0);
}

TEST_CASE("4.4 find the bug: rotated before the heads are split") {
    Generator generator(3);
    const Tensor3 states = randn({2, 5, 12}, generator);
    INFO("each head of 4 features has two pairs, with the frequencies of head_dim 4");
    CHECK_CLOSE(
        rotated_heads(states, 3, 10000),
        apply_rotary_embedding(split_heads(states, 3), table_for(4, 5), position_ids(2, 5)),
        1e-6);
}

TEST_CASE("4.5 find the bug: a new token at position 0") {
    Generator generator(4);
    const Tensor4 states = randn({2, 3, 1, 8}, generator);
    const IdMatrix seven{{7}, {7}};
    INFO("after 7 cached tokens, the new one has position 7");
    CHECK_CLOSE(rotate_next_token(states, table_for(8, 20), 7),
                apply_rotary_embedding(states, table_for(8, 20), seven), 1e-6);
}

TEST_CASE("4.6 write shift_positions") {
    Generator generator(5);
    const Tensor4 states = randn({1, 2, 4, 6}, generator);
    const Vector frequencies = inverse_frequencies(6, 10000);
    const RotaryTable table = table_for(6, 30);
    const Tensor4 early = apply_rotary_embedding(states, table, IdMatrix{{3, 4, 5, 6}});
    const Tensor4 late = apply_rotary_embedding(states, table, IdMatrix{{13, 14, 15, 16}});
    INFO("an offset of 10 gives the rotation of positions that are 10 higher");
    CHECK_CLOSE(shift_positions(early, frequencies, 10), late, 1e-5);
    INFO("an offset of -10 undoes it");
    CHECK_CLOSE(shift_positions(late, frequencies, -10), early, 1e-5);
}

TEST_CASE("4.7 write split_half_to_interleaved") {
    Generator generator(6);
    for (const bool with_bias : {false, true}) {
        const Linear original = make_linear(5, 24, with_bias, generator);
        const Linear round_trip =
            split_half_to_interleaved(interleaved_to_split_half(original, 3), 3);
        INFO("it is the inverse of interleaved_to_split_half for the weight",
             with_bias ? " and the bias" : "");
        CHECK_CLOSE(round_trip.weight, original.weight, 0);
        REQUIRE(round_trip.bias.has_value() == with_bias);
        if (with_bias) CHECK_CLOSE(*round_trip.bias, *original.bias, 0);
    }
}

TEST_CASE("4.8 write theta_for_context") {
    const Real theta = theta_for_context(64, 8192);
    const Vector frequencies = inverse_frequencies(64, theta);
    INFO(
        "after 8192 positions the lowest-frequency pair has rotated by 2 pi, but it has "
        "rotated by ",
        8192 * frequencies(31));
    CHECK(8192 * frequencies(31) == doctest::Approx(2 * std::numbers::pi).epsilon(1e-4));
}
