#include <cmath>
#include <numbers>

#include "chapters/04_rope/rope.hpp"
#include "tests/check.hpp"

using namespace llm;

namespace {

RotaryTable table_for(std::size_t head_dim, std::size_t num_positions) {
    return make_rotary_table(inverse_frequencies(head_dim, 10000), num_positions);
}

// One query or key of 8 numbers, rotated to a position.
Tensor4 rotated_to(Id position, const Tensor4& vector) {
    return rotate_split_half(vector, table_for(8, 5000), IdMatrix{{position}});
}

Real dot_product(const Tensor4& a, const Tensor4& b) { return xt::sum(a * b)(); }

}  // namespace

TEST_CASE("inverse_frequencies: pair i turns by theta to the power of -2i/D") {
    CHECK_CLOSE(inverse_frequencies(4, 10000), (Vector{1, 0.01f}), 1e-7);
    CHECK_CLOSE(inverse_frequencies(8, 10000), fixture<1>("04_rope/frequencies"), 1e-7);
    CHECK_CLOSE(inverse_frequencies(2, 500000), (Vector{1}), 0);
}

TEST_CASE("inverse_frequencies: an odd head cannot be cut into pairs") {
    CHECK_THROWS_WITH(inverse_frequencies(7, 10000),
                      "rope: a head of 7 numbers cannot be cut into pairs");
    CHECK_THROWS_AS(inverse_frequencies(0, 10000), ShapeError);
}

TEST_CASE("make_rotary_table equals PyTorch's cos and sin of position times frequency") {
    const RotaryTable table = table_for(8, 40);
    CHECK_CLOSE(table.cos, fixture<2>("04_rope/table_cos"), 1e-5);
    CHECK_CLOSE(table.sin, fixture<2>("04_rope/table_sin"), 1e-5);
}

TEST_CASE("angles are exact for late and odd positions, where 16 bits would not do") {
    const RotaryTable table = table_for(8, 4002);
    for (const std::size_t position : {257, 2049, 4001}) {
        CHECK(table.cos(position, 0) ==
              doctest::Approx(std::cos(double(position))).epsilon(1e-5));
        CHECK(table.sin(position, 1) ==
              doctest::Approx(std::sin(0.1 * double(position))).epsilon(1e-3));
    }
}

TEST_CASE("rotate_split_half equals Hugging Face's rotation, with positions in any order") {
    CHECK_CLOSE(rotate_split_half(fixture<4>("04_rope/states"), table_for(8, 40),
                                  id_fixture<2>("04_rope/positions")),
                fixture<4>("04_rope/split_half"), 1e-5);
}

TEST_CASE("rotate_interleaved equals Meta's complex rotation") {
    CHECK_CLOSE(rotate_interleaved(fixture<4>("04_rope/states"), table_for(8, 40),
                                   id_fixture<2>("04_rope/positions")),
                fixture<4>("04_rope/interleaved"), 1e-5);
}

TEST_CASE("rotate_complex is rotate_interleaved in other words") {
    CHECK_CLOSE(rotate_complex(fixture<4>("04_rope/states"), table_for(8, 40),
                               id_fixture<2>("04_rope/positions")),
                fixture<4>("04_rope/interleaved"), 1e-5);
}

TEST_CASE("rotate_half and repeat_halves write the split-half rotation as Hugging Face does") {
    const Tensor4 states = fixture<4>("04_rope/states");
    CHECK_CLOSE(rotate_half(states), fixture<4>("04_rope/rotate_half"), 0);
    CHECK_CLOSE(repeat_halves(Matrix{{1, 2}, {3, 4}}), (Matrix{{1, 2, 1, 2}, {3, 4, 3, 4}}), 0);

    const RotaryTable table = table_for(8, 5);
    const Matrix cos = repeat_halves(table.cos);
    const Matrix sin = repeat_halves(table.sin);
    const Tensor4 as_formula = states * cos + rotate_half(states) * sin;
    CHECK_CLOSE(as_formula, rotate_split_half(states, table, position_ids(2, 5)), 1e-6);
}

TEST_CASE("a quarter turn moves the first number of a pair into the second") {
    const Real right_angle = std::numbers::pi_v<Real> / 2;
    const RotaryTable table = make_rotary_table(Vector{right_angle, 0}, 2);
    const Tensor4 states = reshape(Vector{1, 2, 3, 4}, {1, 1, 1, 4});
    const auto turned = [&](auto rotate) {
        return reshape(rotate(states, table, IdMatrix{{1}}), {1, 4});
    };
    CHECK_CLOSE(turned(rotate_split_half), (Matrix{{-3, 2, 1, 4}}), 1e-6);
    CHECK_CLOSE(turned(rotate_interleaved), (Matrix{{-2, 1, 3, 4}}), 1e-6);
}

TEST_CASE("position 0 turns nothing, no position changes a length") {
    Generator generator(1);
    const Tensor4 vector = randn({1, 1, 1, 8}, generator);
    CHECK_CLOSE(rotated_to(0, vector), vector, 0);
    const Tensor4 turned = rotated_to(123, vector);
    CHECK(!difference(turned, vector, 0.1).empty());
    CHECK(std::abs(dot_product(turned, turned) - dot_product(vector, vector)) < 1e-5);
}

TEST_CASE("a score depends on the distance of the positions alone") {
    Generator generator(2);
    const Tensor4 query = randn({1, 1, 1, 8}, generator);
    const Tensor4 key = randn({1, 1, 1, 8}, generator);
    const Real near_start = dot_product(rotated_to(5, query), rotated_to(2, key));
    const Real shifted = dot_product(rotated_to(205, query), rotated_to(202, key));
    const Real other_distance = dot_product(rotated_to(5, query), rotated_to(3, key));
    CHECK(std::abs(near_start - shifted) < 1e-4);
    CHECK(std::abs(near_start - other_distance) > 1e-2);
}

TEST_CASE("an offset is no more than later position ids") {
    const Tensor4 states = fixture<4>("04_rope/states");
    const RotaryTable table = table_for(8, 40);
    const IdMatrix positions = position_ids(2, 5);
    const Tensor4 all = rotate_split_half(states, table, positions);

    const Tensor4 last = xt::view(states, xt::all(), xt::all(), xt::range(3, 5));
    const IdMatrix last_positions = xt::view(positions, xt::all(), xt::range(3, 5));
    const Tensor4 expected = xt::view(all, xt::all(), xt::all(), xt::range(3, 5));
    CHECK_CLOSE(rotate_split_half(last, table, last_positions), expected, 0);
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

TEST_CASE("the bridge: reordered weights give the same scores in the other layout") {
    Generator generator(3);
    const Tensor3 hidden_states = randn({2, 5, 20}, generator);
    const Linear q_proj = make_linear(20, 24, true, generator);
    const Linear k_proj = make_linear(20, 24, true, generator);
    const RotaryTable table = table_for(8, 5);
    const IdMatrix positions = position_ids(2, 5);
    const auto scores_of_head = [](const Tensor4& queries, const Tensor4& keys) -> Matrix {
        const Matrix q = xt::view(queries, 1, 2);
        const Matrix k = xt::view(keys, 1, 2);
        return xt::linalg::dot(q, xt::transpose(k));
    };

    const auto queries = split_heads(q_proj(hidden_states), 3);
    const auto keys = split_heads(k_proj(hidden_states), 3);
    const Matrix interleaved = scores_of_head(rotate_interleaved(queries, table, positions),
                                              rotate_interleaved(keys, table, positions));
    const auto split_queries =
        split_heads(interleaved_to_split_half(q_proj, 3)(hidden_states), 3);
    const auto split_keys = split_heads(interleaved_to_split_half(k_proj, 3)(hidden_states), 3);
    CHECK_CLOSE(scores_of_head(rotate_split_half(split_queries, table, positions),
                               rotate_split_half(split_keys, table, positions)),
                interleaved, 1e-5);
    CHECK(!difference(scores_of_head(rotate_split_half(queries, table, positions),
                                     rotate_split_half(keys, table, positions)),
                      interleaved, 1e-2)
               .empty());
}

TEST_CASE("interpolate_positions: position 40 turns as position 10 did") {
    const Vector frequencies = inverse_frequencies(8, 10000);
    const RotaryTable plain = make_rotary_table(frequencies, 41);
    const RotaryTable slow = make_rotary_table(interpolate_positions(frequencies, 4), 41);
    const Vector expected = xt::view(plain.cos, 10);
    CHECK_CLOSE(Vector(xt::view(slow.cos, 40)), expected, 1e-5);
}

TEST_CASE("ntk_theta: the fastest pair keeps its speed, the slowest is factor times slower") {
    const Vector before = inverse_frequencies(16, 10000);
    const Vector after = inverse_frequencies(16, ntk_theta(10000, 8, 16));
    CHECK(after(0) == before(0));
    CHECK(after(7) * 8 == doctest::Approx(before(7)).epsilon(1e-5));
    CHECK_THROWS_WITH(ntk_theta(10000, 8, 2),
                      "rope: NTK scaling needs more than one pair, a head has 2 numbers");
}

TEST_CASE("scale_like_llama3 equals Hugging Face's frequencies for Llama 3.1") {
    const Vector scaled = scale_like_llama3(inverse_frequencies(128, 500000), Llama3Scaling{});
    const Vector expected = fixture<1>("04_rope/llama3_frequencies");
    const Vector ratio = scaled / expected;  // the slow frequencies are tiny: compare quotients
    CHECK_CLOSE(ratio, Vector(xt::ones<Real>({64})), 1e-5);
}

TEST_CASE("scale_like_llama3 uses every field, as Hugging Face does with other numbers") {
    const Llama3Scaling scaling{32, 2, 5, 4096};
    const Vector scaled = scale_like_llama3(inverse_frequencies(128, 500000), scaling);
    const Vector ratio = scaled / fixture<1>("04_rope/llama3_other_frequencies");
    CHECK_CLOSE(ratio, Vector(xt::ones<Real>({64})), 1e-5);
    CHECK_THROWS_AS(scale_like_llama3(Vector{1}, Llama3Scaling{8, 4, 4, 8192}), ShapeError);
}

TEST_CASE("sinusoidal_positions: sine at even places, cosine at odd ones") {
    CHECK_CLOSE(sinusoidal_positions(5, 6), fixture<2>("04_rope/sinusoidal"), 1e-5);
    CHECK_THROWS_AS(sinusoidal_positions(5, 7), ShapeError);

    // Far out, where another base than 10000 would show: pair 8 of 32 turns by a tenth.
    const Matrix far = sinusoidal_positions(2000, 64);
    CHECK(far(1999, 16) == doctest::Approx(std::sin(199.9)).epsilon(1e-4));
    CHECK(far(1999, 17) == doctest::Approx(std::cos(199.9)).epsilon(1e-4));
}

TEST_CASE("rope names what does not fit") {
    const Tensor4 states = counting({2, 3, 5, 8});
    const IdMatrix positions = position_ids(2, 5);
    CHECK_THROWS_WITH(rotate_split_half(states, table_for(6, 9), positions),
                      "rope: tables of (9, 3) and (9, 3) do not fit states of (2, 3, 5, 8)");
    CHECK_THROWS_WITH(
        rotate_interleaved(states, {table_for(8, 9).cos, table_for(8, 7).sin}, positions),
        "rope: tables of (9, 4) and (7, 4) do not fit states of (2, 3, 5, 8)");
    CHECK_THROWS_WITH(rotate_split_half(states, table_for(8, 9), position_ids(2, 4)),
                      "rope: position ids of (2, 4) do not fit states of (2, 3, 5, 8)");
    CHECK_THROWS_WITH(rotate_split_half(states, table_for(8, 4), positions),
                      "rope: position 4 lies outside a table of 4 positions");
    CHECK_THROWS_WITH(rotate_complex(states, table_for(8, 9), xt::ones<Id>({2, 5}) * -1),
                      "rope: position -1 lies outside a table of 9 positions");
    CHECK_THROWS_WITH(
        interleaved_to_split_half(Linear{Matrix(xt::ones<Real>({9, 2})), std::nullopt}, 3),
        "rope: a weight of (9, 2) cannot be cut into 3 heads of pairs");
    CHECK_THROWS_AS(interleaved_to_split_half(Vector{1, 2, 3}), ShapeError);
    CHECK_THROWS_AS(interleaved_to_split_half(Linear{counting({4, 2}), std::nullopt}, 0),
                    ShapeError);
    CHECK_THROWS_AS(rotate_split_half(states, table_for(8, 9), position_ids(1, 5)), ShapeError);
    CHECK_THROWS_AS(rotate_half(counting({1, 1, 2, 7})), ShapeError);
}
