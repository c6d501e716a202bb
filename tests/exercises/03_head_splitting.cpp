#include "chapters/01_masking/config.hpp"
#include "chapters/03_head_splitting/exercise.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

TEST_CASE("3.1 predict where an element comes from") {
    const Vector prediction = predicted_elements();
    Tensor3 states = xt::zeros<Real>({1, 3, 8});
    for (const auto [t, f] : every_index(3, 8)) states(0, t, f) = Real(100 * t + f);
    const Tensor4 reshaped = reshape(states, {1, 2, 3, 4});
    const Vector elements{split_heads(states, 2)(0, 1, 0, 1), reshaped(0, 1, 0, 1)};
    INFO("the element of the heads, and the element after a reshape alone");
    CHECK_CLOSE(prediction, elements, 0);
}

TEST_CASE("3.2 predict the key and value heads") {
    const Vector prediction = predicted_kv_heads();
    Config config;
    config.num_attention_heads = 12;
    config.num_key_value_heads = 4;
    const std::size_t groups = num_key_value_groups(config);
    const Vector heads{Real(1 / groups), Real(4 / groups), Real(5 / groups), Real(9 / groups)};
    INFO("the key/value heads of the query heads 1, 4, 5 and 9");
    CHECK_CLOSE(prediction, heads, 0);
}

TEST_CASE("3.3 find the bug: the queries of a fused projection") {
    const Tensor3 fused = counting({1, 2, 12});  // 2 heads of 2 features
    INFO("of token {0, ..., 11}: {0, 1} for head 0 and {6, 7} for head 1");
    CHECK_CLOSE(fused_queries(fused, 2), (Tensor4{{{{0, 1}, {12, 13}}, {{6, 7}, {18, 19}}}}),
                0);
}

TEST_CASE("3.4 write interleave_heads") {
    const Tensor4 heads = counting({2, 3, 5, 4});
    const Tensor3 merged = interleave_heads(heads);
    REQUIRE(dims(merged) == std::array<std::size_t, 3>{2, 5, 12});
    Tensor3 expected = xt::zeros<Real>({2, 5, 12});
    for (const auto [b, h, t, d] : every_index(2, 3, 5, 4))
        expected(b, t, d * 3 + h) = heads(b, h, t, d);
    INFO("feature d of head h gets index d*H + h");
    CHECK_CLOSE(merged, expected, 0);
}

TEST_CASE("3.5 write project_one_head") {
    Generator generator(4);
    const Tensor3 hidden_states = randn({2, 3, 6}, generator);
    for (const bool with_bias : {false, true}) {
        const Linear q_proj = make_linear(6, 20, with_bias, generator);
        const Tensor4 heads = llm::split_heads(q_proj(hidden_states), 5);
        const Tensor3 head_3 = xt::view(heads, xt::all(), 3);
        const std::string bias = with_bias ? "with bias" : "without bias";
        INFO("the same queries as head 3 of the whole layer ", bias);
        CHECK_CLOSE(project_one_head(hidden_states, q_proj, 3, 4), head_3, 1e-6);
    }
}
