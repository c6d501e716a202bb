#include <numbers>

#include "chapters/04_rope/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

RotaryTable table_for(std::size_t head_dim, std::size_t num_positions) {
    return make_rotary_table(inverse_frequencies(head_dim, 10000), num_positions);
}

}  // namespace

TEST_CASE("4.1 find the bug: a rotation for Hugging Face's weights") {
    Generator generator(1);
    const Tensor4 states = randn({2, 3, 5, 8}, generator);
    const IdMatrix positions = position_ids(2, 5);
    INFO("number i is paired with number i + D/2");
    CHECK_CLOSE(rotate_for_hugging_face(states, table_for(8, 5), positions),
                rotate_split_half(states, table_for(8, 5), positions), 1e-6);
}

TEST_CASE("4.2 find the bug: frequencies that fall too slowly") {
    INFO("two pairs and theta 10000: the second turns a hundred times slower than the first");
    CHECK_CLOSE(frequencies(4, 10000), (Vector{1, 0.01f}), 1e-6);
    CHECK_CLOSE(frequencies(128, 500000), inverse_frequencies(128, 500000), 1e-6);
}

TEST_CASE("4.3 find the bug: positions where they do not belong") {
    Generator generator(2);
    const AttentionInputs inputs{randn({1, 2, 3, 4}, generator), randn({1, 2, 3, 4}, generator),
                                 randn({1, 2, 3, 4}, generator)};
    const IdMatrix positions = position_ids(1, 3);
    const AttentionInputs placed = with_positions(inputs, table_for(4, 3), positions);
    INFO("queries and keys are rotated, values are not");
    CHECK_CLOSE(placed.queries, rotate_split_half(inputs.queries, table_for(4, 3), positions),
                1e-6);
    CHECK_CLOSE(placed.keys, rotate_split_half(inputs.keys, table_for(4, 3), positions), 1e-6);
    CHECK_CLOSE(placed.values, inputs.values, 0);
}

TEST_CASE("4.4 find the bug: rotated before the heads are split") {
    Generator generator(3);
    const Tensor3 states = randn({2, 5, 12}, generator);
    INFO("each head of 4 numbers has two pairs, at the speeds of a head of 4");
    CHECK_CLOSE(rotated_heads(states, 3, 10000),
                rotate_split_half(split_heads(states, 3), table_for(4, 5), position_ids(2, 5)),
                1e-6);
}

TEST_CASE("4.5 find the bug: a new token that forgets its position") {
    Generator generator(4);
    const Tensor4 states = randn({2, 3, 1, 8}, generator);
    const IdMatrix seventh{{7}, {7}};
    INFO("behind 7 cached tokens the new one stands at position 7");
    CHECK_CLOSE(rotate_next_token(states, table_for(8, 20), 7),
                rotate_split_half(states, table_for(8, 20), seventh), 1e-6);
}

TEST_CASE("4.6 write shift_positions") {
    Generator generator(5);
    const Tensor4 states = randn({1, 2, 4, 6}, generator);
    const Vector speeds = inverse_frequencies(6, 10000);
    const RotaryTable table = table_for(6, 30);
    const Tensor4 early = rotate_split_half(states, table, IdMatrix{{3, 4, 5, 6}});
    const Tensor4 late = rotate_split_half(states, table, IdMatrix{{13, 14, 15, 16}});
    INFO("10 steps further is the same as rotating to positions 10 higher");
    CHECK_CLOSE(shift_positions(early, speeds, 10), late, 1e-5);
    INFO("and 10 steps back undoes it");
    CHECK_CLOSE(shift_positions(late, speeds, -10), early, 1e-5);
}

TEST_CASE("4.7 write split_half_to_interleaved") {
    Generator generator(6);
    for (const bool with_bias : {false, true}) {
        const Linear original = make_linear(5, 24, with_bias, generator);
        const Linear there_and_back =
            split_half_to_interleaved(interleaved_to_split_half(original, 3), 3);
        INFO("reordering there and back gives the original weight",
             with_bias ? " and bias" : "");
        CHECK_CLOSE(there_and_back.weight, original.weight, 0);
        REQUIRE(there_and_back.bias.has_value() == with_bias);
        if (with_bias) CHECK_CLOSE(*there_and_back.bias, *original.bias, 0);
    }
}

TEST_CASE("4.8 write theta_for_context") {
    const Real theta = theta_for_context(64, 8192);
    const Vector speeds = inverse_frequencies(64, theta);
    INFO("after 8192 positions the slowest pair has turned by 2 pi, it has turned by ",
         8192 * speeds(31));
    CHECK(8192 * speeds(31) == doctest::Approx(2 * std::numbers::pi).epsilon(1e-4));
}
