#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/exercise.hpp"
#include "common/numbers/statistics.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

RotaryTable table_for(std::size_t head_dim, std::size_t num_positions) {
    return make_rotary_table(inverse_frequencies(head_dim, 10000), num_positions);
}

// Queries, keys and scores of one head, its output, and its output with rotated values.
std::vector<Matrix> attention_at(const Tensor4& queries,          // (1, 1, T, D)
                                 const Tensor4& keys,             // (1, 1, T, D)
                                 const Tensor4& values,           // (1, 1, T, D)
                                 const IdMatrix& position_ids) {  // (1, T)
    const auto head = [&](const Tensor4& states) -> Matrix {
        return xt::view(apply_rotary_embedding(states, table_for(8, 20), position_ids), 0, 0);
    };
    const Matrix q = head(queries), k = head(keys), rotated_values = head(values);
    const Matrix v = xt::view(values, 0, 0);
    const Matrix scores = xt::linalg::dot(q, xt::transpose(k));
    const Matrix weights = softmax(Matrix(scores + causal_mask(4, 4)));
    return {q, k, scores, xt::linalg::dot(weights, v),
            xt::linalg::dot(weights, rotated_values)};
}

}  // namespace

TEST_CASE("4.1 predict a rotated head") {
    const Vector prediction = predicted_rotation();  // before the answer is computed
    const Real right_angle = std::numbers::pi_v<Real> / 2;
    const RotaryTable table = make_rotary_table(Vector{right_angle, right_angle / 2}, 3);
    const Tensor4 head = reshape(Vector{1, 2, 3, 4}, {1, 1, 1, 4});
    const Tensor4 rotated = apply_rotary_embedding(head, table, IdMatrix{{2}});
    INFO("the features (1, 2, 3, 4) at position 2");
    CHECK_CLOSE(prediction, reshape(rotated, {4}), 0.01);
}

TEST_CASE("4.2 predict the scores of one pair") {
    const Vector prediction = predicted_scores();
    const RotaryTable table = make_rotary_table(Vector{std::numbers::pi_v<Real> / 6}, 200);
    const Tensor4 query = reshape(Vector{1, 0}, {1, 1, 1, 2});
    const Tensor4 key = reshape(Vector{0, 2}, {1, 1, 1, 2});
    const auto score = [&](Id query_at, Id key_at) -> Real {
        const Tensor4 q = apply_rotary_embedding(query, table, IdMatrix{{query_at}});
        const Tensor4 k = apply_rotary_embedding(key, table, IdMatrix{{key_at}});
        return xt::sum(q * k)();
    };
    INFO("the scores at (5, 5), (5, 2), (105, 104) and (2, 5)");
    CHECK_CLOSE(prediction, (Vector{score(5, 5), score(5, 2), score(105, 104), score(2, 5)}),
                0.01);
}

TEST_CASE("4.3 predict what a shift of all positions changes") {
    const Vector prediction = predicted_changes();
    Generator generator(3);
    const Tensor4 queries = randn({1, 1, 4, 8}, generator);
    const Tensor4 keys = randn({1, 1, 4, 8}, generator);
    const Tensor4 values = randn({1, 1, 4, 8}, generator);
    const std::vector<Matrix> before = attention_at(queries, keys, values, {{0, 1, 2, 3}});
    const std::vector<Matrix> after = attention_at(queries, keys, values, {{10, 11, 12, 13}});
    Vector changes = xt::zeros<Real>({5});
    for (std::size_t i = 0; i < 5; ++i)
        if (largest_difference(before[i], after[i]) > 1e-3) changes(i) = 1;
    INFO("1 for a change of: queries, keys, scores, output, output with rotated values");
    CHECK_CLOSE(prediction, changes, 0);
}

TEST_CASE("4.4 find the bug: RoPE with wide tables") {
    Generator generator(1);
    const Tensor4 states = randn({2, 3, 5, 8}, generator);
    INFO("two sequences of five tokens, three heads of eight features");
    CHECK_CLOSE(rotate_with_wide_tables(states, table_for(8, 9)),
                apply_rotary_embedding(states, table_for(8, 5), position_ids(2, 5)), 1e-6);
}

TEST_CASE("4.5 find the bug: the heads of a layer") {
    Generator generator(3);
    const Tensor3 states = randn({2, 5, 12}, generator);
    INFO("three heads of four features");
    CHECK_CLOSE(
        heads_with_rope(states, 3, 10000),
        apply_rotary_embedding(split_heads(states, 3), table_for(4, 5), position_ids(2, 5)),
        1e-6);
}

TEST_CASE("4.6 find the bug: a step of generation") {
    Generator generator(4);
    const Tensor4 keys = randn({2, 3, 8, 6}, generator);
    const Tensor4 rotated = apply_rotary_embedding(keys, table_for(6, 8), position_ids(2, 8));
    const auto part = [](const Tensor4& tensor, std::size_t begin, std::size_t end) -> Tensor4 {
        return xt::view(tensor, xt::all(), xt::all(), xt::range(begin, end));
    };
    INFO("the keys of eight tokens after RoPE, seven of them from the cache");
    CHECK_CLOSE(append_key(part(rotated, 0, 7), part(keys, 7, 8), table_for(6, 20)), rotated,
                1e-6);
}

TEST_CASE("4.7 write shift_positions") {
    Generator generator(5);
    const Tensor4 states = randn({1, 2, 4, 6}, generator);
    const Vector frequencies = inverse_frequencies(6, 10000);
    const RotaryTable table = table_for(6, 30);
    const Tensor4 early = apply_rotary_embedding(states, table, IdMatrix{{3, 4, 5, 6}});
    const Tensor4 late = apply_rotary_embedding(states, table, IdMatrix{{13, 14, 15, 16}});
    {
        INFO("an offset of 10 gives the rotation of positions that are 10 higher");
        CHECK_CLOSE(shift_positions(early, frequencies, 10), late, 1e-5);
    }
    INFO("an offset of -10 undoes it: expected a tensor of shape ", dims(early));
    CHECK_CLOSE(shift_positions(late, frequencies, -10), early, 1e-5);
}

TEST_CASE("4.8 write split_half_to_interleaved") {
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

TEST_CASE("4.9 write theta_for_context") {
    const Real theta = theta_for_context(64, 8192);
    const Vector frequencies = inverse_frequencies(64, theta);
    INFO(
        "after 8192 positions the lowest-frequency pair has rotated by 2 pi, but it has "
        "rotated by ",
        8192 * frequencies(31));
    CHECK(8192 * frequencies(31) == doctest::Approx(2 * std::numbers::pi).epsilon(1e-4));
}
