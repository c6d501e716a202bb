#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/rope.hpp"
#include "chapters/04_rope/rope_scaling.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

RotaryTable table_for(std::size_t head_dim, std::size_t num_positions) {
    return make_rotary_table(inverse_frequencies(head_dim, 10000), num_positions);
}

// One query or key of 8 features, rotated to a position.
Tensor4 rotated_to(Id position, const Tensor4& vector) {
    return apply_rotary_embedding(vector, table_for(8, 5000), IdMatrix{{position}});
}

Real dot_product(const Tensor4& a, const Tensor4& b) { return xt::sum(a * b)(); }

}  // namespace

TEST_CASE("inverse_frequencies: pair i has theta to the power of -2i/D") {
    CHECK_CLOSE(inverse_frequencies(4, 10000), (Vector{1, 0.01f}), 1e-7);
    CHECK_CLOSE(inverse_frequencies(8, 10000), fixture<1>("04_rope/frequencies"), 1e-7);
    CHECK_CLOSE(inverse_frequencies(2, 500000), (Vector{1}), 0);
}

TEST_CASE("inverse_frequencies fails unless head_dim is positive and even") {
    CHECK_THROWS_WITH(inverse_frequencies(7, 10000),
                      "rope: head_dim must be positive and even, not 7");
    CHECK_THROWS_AS(inverse_frequencies(0, 10000), ValueError);
}

TEST_CASE("make_rotary_table equals PyTorch's cos and sin of position times frequency") {
    const RotaryTable table = table_for(8, 40);
    CHECK_CLOSE(table.cos, fixture<2>("04_rope/table_cos"), 1e-5);
    CHECK_CLOSE(table.sin, fixture<2>("04_rope/table_sin"), 1e-5);
}

TEST_CASE("angles are exact for late and odd positions, unlike in 16 bits") {
    const RotaryTable table = table_for(8, 4002);
    for (const std::size_t position : {257, 2049, 4001}) {
        CHECK(table.cos(position, 0) ==
              doctest::Approx(std::cos(double(position))).epsilon(1e-5));
        CHECK(table.sin(position, 1) ==
              doctest::Approx(std::sin(0.1 * double(position))).epsilon(1e-3));
    }
}

TEST_CASE("apply_rotary_embedding equals Hugging Face's, with position ids in any order") {
    CHECK_CLOSE(apply_rotary_embedding(fixture<4>("04_rope/states"), table_for(8, 40),
                                       id_fixture<2>("04_rope/positions")),
                fixture<4>("04_rope/split_half"), 1e-5);
}

TEST_CASE("apply_rotary_embedding with interleaved pairs equals Meta's complex product") {
    CHECK_CLOSE(
        apply_rotary_embedding(fixture<4>("04_rope/states"), table_for(8, 40),
                               id_fixture<2>("04_rope/positions"), RopeLayout::interleaved),
        fixture<4>("04_rope/interleaved"), 1e-5);
}

TEST_CASE("apply_rotary_embedding_complex equals Meta's complex product") {
    CHECK_CLOSE(apply_rotary_embedding_complex(fixture<4>("04_rope/states"), table_for(8, 40),
                                               id_fixture<2>("04_rope/positions")),
                fixture<4>("04_rope/interleaved"), 1e-5);
}

TEST_CASE("rotate_half and repeat_halves give RoPE by Hugging Face's formula") {
    const Tensor4 states = fixture<4>("04_rope/states");
    CHECK_CLOSE(rotate_half(states), fixture<4>("04_rope/rotate_half"), 0);
    CHECK_CLOSE(repeat_halves(Matrix{{1, 2}, {3, 4}}), (Matrix{{1, 2, 1, 2}, {3, 4, 3, 4}}), 0);

    const RotaryTable table = table_for(8, 5);
    const Matrix cos = repeat_halves(table.cos);
    const Matrix sin = repeat_halves(table.sin);
    const Tensor4 by_formula = states * cos + rotate_half(states) * sin;
    CHECK_CLOSE(by_formula, apply_rotary_embedding(states, table, position_ids(2, 5)), 1e-6);
}

TEST_CASE("a rotation by 90 degrees maps (x, y) to (-y, x) in the pair of each layout") {
    const Real right_angle = std::numbers::pi_v<Real> / 2;
    const RotaryTable table = make_rotary_table(Vector{right_angle, 0}, 2);
    const Tensor4 states = reshape(Vector{1, 2, 3, 4}, {1, 1, 1, 4});
    const auto rotated = [&](RopeLayout layout) {
        return reshape(apply_rotary_embedding(states, table, IdMatrix{{1}}, layout), {1, 4});
    };
    CHECK_CLOSE(rotated(RopeLayout::split_half), (Matrix{{-3, 2, 1, 4}}), 1e-6);
    CHECK_CLOSE(rotated(RopeLayout::interleaved), (Matrix{{-2, 1, 3, 4}}), 1e-6);
}

TEST_CASE("position 0 leaves a vector unchanged, every position preserves its norm") {
    Generator generator(1);
    const Tensor4 vector = randn({1, 1, 1, 8}, generator);
    CHECK_CLOSE(rotated_to(0, vector), vector, 0);
    const Tensor4 rotated = rotated_to(123, vector);
    CHECK(!difference(rotated, vector, 0.1).empty());
    CHECK(std::abs(dot_product(rotated, rotated) - dot_product(vector, vector)) < 1e-5);
}

TEST_CASE("a score depends on the relative position only") {
    Generator generator(2);
    const Tensor4 query = randn({1, 1, 1, 8}, generator);
    const Tensor4 key = randn({1, 1, 1, 8}, generator);
    const Real near_start = dot_product(rotated_to(5, query), rotated_to(2, key));
    const Real shifted = dot_product(rotated_to(205, query), rotated_to(202, key));
    const Real other_distance = dot_product(rotated_to(5, query), rotated_to(3, key));
    CHECK(std::abs(near_start - shifted) < 1e-4);
    CHECK(std::abs(near_start - other_distance) > 1e-2);
}

TEST_CASE("the position ids of the last tokens give the rotations of the last tokens") {
    const Tensor4 states = fixture<4>("04_rope/states");
    const RotaryTable table = table_for(8, 40);
    const IdMatrix positions = position_ids(2, 5);
    const Tensor4 all = apply_rotary_embedding(states, table, positions);

    const Tensor4 last = xt::view(states, xt::all(), xt::all(), xt::range(3, 5));
    const IdMatrix last_positions = xt::view(positions, xt::all(), xt::range(3, 5));
    const Tensor4 expected = xt::view(all, xt::all(), xt::all(), xt::range(3, 5));
    CHECK_CLOSE(apply_rotary_embedding(last, table, last_positions), expected, 0);
}

TEST_CASE(
    "interleaved_to_split_half reorders weight and bias as Hugging Face's converter does") {
    const Linear interleaved{fixture<2>("04_rope/interleaved_weight"),
                             fixture<1>("04_rope/interleaved_bias")};
    const Linear split = interleaved_to_split_half(interleaved, 3);
    CHECK_CLOSE(split.weight, fixture<2>("04_rope/split_half_weight"), 0);
    CHECK_CLOSE(*split.bias, fixture<1>("04_rope/split_half_bias"), 0);
    CHECK(!interleaved_to_split_half({interleaved.weight, std::nullopt}, 3).bias);
    CHECK_CLOSE(interleaved_to_split_half(Vector{0, 1, 2, 3, 4, 5}), (Vector{0, 2, 4, 1, 3, 5}),
                0);
}

TEST_CASE("a table with fewer pairs rotates the first features of a head, and no others") {
    Generator generator(5);
    const Tensor4 states = randn({2, 3, 4, 10}, generator);
    RotaryTable table = make_rotary_table(inverse_frequencies(6, 100), 9);
    table.num_unrotated = 4;
    const IdMatrix positions{{0, 3, 8, 1}, {5, 5, 2, 7}};
    const auto features = [](const Tensor4& of, std::size_t begin, std::size_t end) {
        return Tensor4(xt::view(of, xt::all(), xt::all(), xt::all(), xt::range(begin, end)));
    };
    for (const RopeLayout layout : {RopeLayout::split_half, RopeLayout::interleaved}) {
        const Tensor4 rotated = apply_rotary_embedding(states, table, positions, layout);
        CHECK_CLOSE(features(rotated, 0, 6),
                    apply_rotary_embedding(features(states, 0, 6), {table.cos, table.sin},
                                           positions, layout),
                    0);
        CHECK_CLOSE(features(rotated, 6, 10), features(states, 6, 10), 0);
    }
    table.num_unrotated = 3;
    CHECK_THROWS_WITH(
        apply_rotary_embedding(states, table, positions),
        "rope: 6 rotated and 3 other features do not match states of (2, 3, 4, 10)");
}

TEST_CASE("interleaved_to_split_half: converted weights give the scores of the old layout") {
    Generator generator(3);
    const Tensor3 hidden_states = randn({2, 5, 20}, generator);
    const Linear q_proj = make_linear(20, 24, true, generator);
    const Linear k_proj = make_linear(20, 24, true, generator);
    // The scores of head 2 of sequence 1.
    const auto scores = [&](const Linear& q, const Linear& k, RopeLayout layout) -> Matrix {
        const auto head = [&](const Linear& projection) -> Matrix {
            const Tensor4 heads = split_heads(projection(hidden_states), 3);
            return xt::view(
                apply_rotary_embedding(heads, table_for(8, 5), position_ids(2, 5), layout), 1,
                2);
        };
        return xt::linalg::dot(head(q), xt::transpose(head(k)));
    };

    const Matrix interleaved = scores(q_proj, k_proj, RopeLayout::interleaved);
    CHECK_CLOSE(scores(interleaved_to_split_half(q_proj, 3),
                       interleaved_to_split_half(k_proj, 3), RopeLayout::split_half),
                interleaved, 1e-5);
    const Matrix not_converted = scores(q_proj, k_proj, RopeLayout::split_half);
    CHECK(!difference(not_converted, interleaved, 1e-2).empty());
}

TEST_CASE("interpolate_positions: position 40 gets the angles that position 10 had") {
    const Vector frequencies = inverse_frequencies(8, 10000);
    const RotaryTable original = make_rotary_table(frequencies, 41);
    const RotaryTable scaled = make_rotary_table(interpolate_positions(frequencies, 4), 41);
    const Vector expected = xt::view(original.cos, 10);
    CHECK_CLOSE(Vector(xt::view(scaled.cos, 40)), expected, 1e-5);
}

TEST_CASE("ntk_theta: the highest frequency stays, the lowest is divided by factor") {
    const Vector before = inverse_frequencies(16, 10000);
    const Vector after = inverse_frequencies(16, ntk_theta(10000, 8, 16));
    CHECK(after(0) == before(0));
    CHECK(after(7) * 8 == doctest::Approx(before(7)).epsilon(1e-5));
    CHECK_THROWS_WITH(ntk_theta(10000, 8, 2),
                      "rope: NTK scaling needs more than one pair, not a head_dim of 2");
}

TEST_CASE("scale_like_llama3 equals Hugging Face's frequencies for Llama 3.1") {
    const Vector scaled = scale_like_llama3(inverse_frequencies(128, 500000), Llama3Scaling{});
    const Vector expected = fixture<1>("04_rope/llama3_frequencies");
    const Vector ratio = scaled / expected;  // small frequencies are compared by their ratio
    CHECK_CLOSE(ratio, Vector(xt::ones<Real>({64})), 1e-5);
}

TEST_CASE("scale_like_llama3 uses every field, as Hugging Face does with other values") {
    const Llama3Scaling scaling{32, 2, 5, 4096};
    const Vector scaled = scale_like_llama3(inverse_frequencies(128, 500000), scaling);
    const Vector ratio = scaled / fixture<1>("04_rope/llama3_other_frequencies");
    CHECK_CLOSE(ratio, Vector(xt::ones<Real>({64})), 1e-5);
    CHECK_THROWS_AS(scale_like_llama3(Vector{1}, Llama3Scaling{8, 4, 3, 8192}), ValueError);

    // With equal factors, as in Llama 4, nothing is interpolated: 1304 and 0.13 rotations.
    const Vector divided = scale_like_llama3(Vector{1, Real(1e-4)}, {8, 4, 4, 8192});
    CHECK_CLOSE(divided, (Vector{1, Real(1e-4) / 8}), 0);
}

TEST_CASE("rope_frequencies scales if the configuration has a rope_scaling") {
    Config config;
    config.head_dim = 128;
    config.rope_theta = 500000;
    const Vector original = inverse_frequencies(128, 500000);
    CHECK_CLOSE(rope_frequencies(config), original, 0);
    const Llama3Scaling llama3{32, 2, 5, 4096};
    config.rope_scaling = llama3;
    const Vector scaled = scale_like_llama3(original, llama3);
    CHECK_CLOSE(rope_frequencies(config), scaled, 0);

    // Llama 3's scaling as explicit factors.
    config.rope_scaling = FrequencyFactors{original / scaled};
    CHECK_CLOSE(rope_frequencies(config) / scaled, Vector(xt::ones<Real>({64})), 1e-6);
    config.rope_scaling = FrequencyFactors{Vector{2}};
    CHECK_THROWS_WITH_AS(rope_frequencies(config),
                         "rope: 1 frequency factors for 64 frequencies", ValueError);
}

TEST_CASE("sinusoidal_positions: sine at even features, cosine at odd ones") {
    CHECK_CLOSE(sinusoidal_positions(5, 6), fixture<2>("04_rope/sinusoidal"), 1e-5);
    CHECK_THROWS_AS(sinusoidal_positions(5, 7), ValueError);

    // A late position, where another base than 10000 would show: pair 8 of 32 rotates by 0.1.
    const Matrix late = sinusoidal_positions(2000, 64);
    CHECK(late(1999, 16) == doctest::Approx(std::sin(199.9)).epsilon(1e-4));
    CHECK(late(1999, 17) == doctest::Approx(std::cos(199.9)).epsilon(1e-4));
}

TEST_CASE("rope states both shapes, or the position, when they do not match") {
    const Tensor4 states = counting({2, 3, 5, 8});
    const IdMatrix positions = position_ids(2, 5);
    CHECK_THROWS_WITH(apply_rotary_embedding(states, table_for(6, 9), positions),
                      "rope: tables of (9, 3) and (9, 3) do not match states of (2, 3, 5, 8)");
    CHECK_THROWS_WITH(apply_rotary_embedding(states, {table_for(8, 9).cos, table_for(8, 7).sin},
                                             positions, RopeLayout::interleaved),
                      "rope: tables of (9, 4) and (7, 4) do not match states of (2, 3, 5, 8)");
    CHECK_THROWS_WITH(apply_rotary_embedding(states, table_for(8, 9), position_ids(2, 4)),
                      "rope: position ids of (2, 4) do not match states of (2, 3, 5, 8)");
    CHECK_THROWS_WITH(apply_rotary_embedding(states, table_for(8, 4), positions),
                      "rope: position 4 lies outside a table of 4 positions");
    CHECK_THROWS_WITH(
        apply_rotary_embedding_complex(states, table_for(8, 9), xt::ones<Id>({2, 5}) * -1),
        "rope: position -1 lies outside a table of 9 positions");
    CHECK_THROWS_WITH(
        interleaved_to_split_half(Linear{Matrix(xt::ones<Real>({9, 2})), std::nullopt}, 3),
        "rope: a weight of (9, 2) cannot be split into 3 heads with an even head_dim");
    CHECK_THROWS_AS(interleaved_to_split_half(Vector{1, 2, 3}), ValueError);
    CHECK_THROWS_AS(interleaved_to_split_half(Linear{counting({4, 2}), std::nullopt}, 0),
                    ValueError);
    CHECK_THROWS_AS(apply_rotary_embedding(states, table_for(8, 9), position_ids(1, 5)),
                    ValueError);
    CHECK_THROWS_AS(rotate_half(counting({1, 1, 2, 7})), ValueError);
}
