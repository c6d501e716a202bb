#include <cmath>

#include "chapters/02_projections/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

TEST_CASE("2.1 find the bug: a weight that is not transposed") {
    INFO("output feature o is the dot product of row o of the weight with the input");
    REQUIRE_CLOSE(project(Matrix{{1, 0}}, Matrix{{1, 2}, {3, 4}}), (Matrix{{1, 3}}), 0);
    CHECK_CLOSE(project(Matrix{{1, 0, 1}}, Matrix{{1, 2, 3}, {4, 5, 6}}), (Matrix{{4, 10}}), 0);
}

TEST_CASE("2.2 find the bug: the bound of an initial weight") {
    Generator generator(1);
    const Matrix weight = initial_weight(4, 900, generator);
    const Real largest = xt::amax(xt::abs(weight))();
    INFO("900 input features: the largest weight should be just under 1/30, it is ", largest);
    CHECK(largest <= Real(1) / 30);
    CHECK(largest > Real(0.99) / 30);
    INFO("the smallest weight should be just above -1/30");
    CHECK(xt::amin(weight)() < Real(-0.99) / 30);
}

TEST_CASE("2.3 write project_fused") {
    Generator generator(2);
    const Tensor3 states = randn({2, 3, 5}, generator);
    const Linear q_proj = make_linear(5, 6, false, generator);
    const Linear k_proj = make_linear(5, 4, false, generator);
    const Linear v_proj = make_linear(5, 4, false, generator);
    const Matrix qkv_weight =
        xt::concatenate(xt::xtuple(q_proj.weight, k_proj.weight, v_proj.weight), 0);
    const auto [queries, keys, values] = project_fused(states, qkv_weight, 6, 4);
    INFO("the same queries, keys and values as from three separate layers");
    CHECK_CLOSE(queries, q_proj(states), 1e-6);
    CHECK_CLOSE(keys, k_proj(states), 1e-6);
    CHECK_CLOSE(values, v_proj(states), 1e-6);
}

TEST_CASE("2.4 write fold_scale") {
    Generator generator(3);
    const Tensor3 states = randn({2, 3, 5}, generator);
    for (const bool with_bias : {false, true}) {
        const Linear linear = make_linear(5, 4, with_bias, generator);
        const Tensor3 expected = linear(states) * Real(0.25);
        const std::string bias = with_bias ? "with bias" : "without bias";
        INFO("scale times the outputs of the layer ", bias);
        CHECK_CLOSE(fold_scale(linear, 0.25)(states), expected, 1e-6);
    }
}
