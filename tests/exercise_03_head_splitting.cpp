#include "chapters/03_head_splitting/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

TEST_CASE("3.1 find the bug: heads split by view alone") {
    const Tensor3 states = counting({2, 3, 8});
    INFO("head h of token t holds the h-th slice of that token");
    CHECK_CLOSE(exercise::split_heads(states, 4), llm::split_heads(states, 4), 0);
}

TEST_CASE("3.2 write interleave_heads") {
    const Tensor4 heads = counting({2, 3, 5, 4});
    const Tensor3 merged = interleave_heads(heads);
    REQUIRE(dims(merged) == std::array<std::size_t, 3>{2, 5, 12});
    Tensor3 expected = xt::zeros<Real>({2, 5, 12});
    for (const auto [b, h, t, d] : every_index(2, 3, 5, 4))
        expected(b, t, d * 3 + h) = heads(b, h, t, d);
    INFO("feature d of head h gets index d*H + h");
    CHECK_CLOSE(merged, expected, 0);
}

TEST_CASE("3.3 find the bug: heads merged without a transpose") {
    const Tensor4 heads = counting({2, 3, 5, 4});
    INFO("the row of token t holds all heads of token t and no other token");
    CHECK_CLOSE(exercise::merge_heads(heads), llm::merge_heads(heads), 0);
}

TEST_CASE("3.4 write project_one_head") {
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
