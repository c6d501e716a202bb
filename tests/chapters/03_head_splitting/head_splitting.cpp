#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/02_projections/projections.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("split_heads: head h of token t holds the h-th slice of that token") {
    constexpr std::size_t B = 2, T = 5, H = 3, D = 4;
    const Tensor3 states = counting({B, T, H * D});
    const Tensor4 heads = split_heads(states, H);
    REQUIRE(dims(heads) == std::array{B, H, T, D});
    for (const auto [b, t, h, d] : every_index(B, T, H, D))
        CHECK(heads(b, h, t, d) == states(b, t, h * D + d));
}

TEST_CASE("split_heads equals PyTorch's view + transpose") {
    CHECK_CLOSE(split_heads(fixture<3>("03_head_splitting/states"), 6),
                fixture<4>("03_head_splitting/heads"), 0);
}

TEST_CASE(
    "split_heads with one head keeps the vector, one key head is shared by all query heads") {
    const Tensor3 states = counting({2, 3, 4});
    CHECK_CLOSE(split_heads(states, 1), reshape(states, {2, 1, 3, 4}), 0);
    CHECK(num_key_value_groups(Config{.num_attention_heads = 6, .num_key_value_heads = 1}) ==
          6);
}

TEST_CASE("split_heads: the error states the sizes when heads do not divide the width") {
    CHECK_THROWS_WITH(split_heads(counting({1, 2, 10}), 3),
                      "split_heads: 3 heads do not divide a width of 10");
    CHECK_THROWS_WITH(split_heads(counting({1, 2, 10}), 0),
                      "split_heads: 0 heads do not divide a width of 10");
}

TEST_CASE("merge_heads equals PyTorch's transpose + reshape") {
    CHECK_CLOSE(merge_heads(fixture<4>("03_head_splitting/heads")),
                fixture<3>("03_head_splitting/merged"), 0);
}

TEST_CASE("merge_heads: head h of token t becomes the h-th slice of that token") {
    constexpr std::size_t B = 2, T = 5, H = 3, D = 4;
    const Tensor4 heads = counting({B, H, T, D});
    const Tensor3 merged = merge_heads(heads);
    REQUIRE(dims(merged) == std::array{B, T, H * D});
    for (const auto [b, t, h, d] : every_index(B, T, H, D))
        CHECK(merged(b, t, h * D + d) == heads(b, h, t, d));
}

TEST_CASE("the heads of the sample input equal PyTorch's: 16 for queries, 4 for keys") {
    Generator generator(77);
    const Tensor3 hidden_states = randn({2, 10, 128}, generator);
    const Projections projections = make_projections(validate(Config{}, 10), generator);
    CHECK_CLOSE(split_heads(projections.q_proj(hidden_states), 16),
                fixture<4>("03_head_splitting/demo_query_states"), 1e-5);
    CHECK_CLOSE(split_heads(projections.k_proj(hidden_states), 4),
                fixture<4>("03_head_splitting/demo_key_states"), 1e-5);
    CHECK_CLOSE(split_heads(projections.v_proj(hidden_states), 4),
                fixture<4>("03_head_splitting/demo_value_states"), 1e-5);
}

TEST_CASE("num_key_value_groups: query heads per key/value head") {
    CHECK(num_key_value_groups(Config{}) == 4);
    CHECK(num_key_value_groups(Config{.num_attention_heads = 6, .num_key_value_heads = 6}) ==
          1);
    CHECK_THROWS_WITH(
        num_key_value_groups(Config{.num_attention_heads = 6, .num_key_value_heads = 4}),
        "num_key_value_groups: 4 key/value heads do not divide 6 query heads");
    CHECK_THROWS_AS(num_key_value_groups(Config{.num_key_value_heads = 0}), ValueError);
}
