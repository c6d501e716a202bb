#include <cmath>

#include "chapters/02_projections/exercise.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

TEST_CASE("2.1 predict the output of a linear layer") {
    const Vector prediction = predicted_output();
    const Linear linear{Matrix{{2, 0, 1}, {-1, 1, 0}}, Vector{1, 0}};
    const Vector output = xt::view(linear(Matrix{{3, 1, 2}}), 0);
    INFO("the two output features");
    CHECK_CLOSE(prediction, output, 0);
}

TEST_CASE("2.2 predict the number of parameters") {
    const Vector prediction = predicted_parameter_counts();
    Config config;
    config.hidden_size = 64;
    config.num_attention_heads = 8;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.attention_bias = AttentionBias::qkv;
    Generator generator(0);
    const auto [q_proj, k_proj, v_proj, o_proj] = make_projections(config, generator);
    const Vector counts{Real(num_parameters(q_proj)), Real(num_parameters(k_proj)),
                        Real(num_parameters(v_proj)), Real(num_parameters(o_proj))};
    INFO("the parameters of q_proj, k_proj, v_proj and o_proj");
    CHECK_CLOSE(prediction, counts, 0);
}

TEST_CASE("2.3 find the bug: a layer for a batch") {
    const Linear first_feature{Matrix{{1, 0, 0}}, std::nullopt};
    INFO("feature 0 of each of the tokens {0, 1, 2}, {3, 4, 5}, {6, 7, 8} and {9, 10, 11}");
    const Tensor3 states = counting({2, 2, 3});
    CHECK_CLOSE(project_batch(states, first_feature), first_feature(states), 0);
}

TEST_CASE("2.4 find the bug: weights that preserve the standard deviation") {
    Generator generator(1);
    const Matrix weight = scale_preserving_weight(200, 300, generator);
    const Linear linear{weight, std::nullopt};
    const Matrix inputs = randn({100, 300}, generator);
    const Matrix squares = xt::square(linear(inputs));
    const double standard_deviation = std::sqrt(double(xt::mean<Real>(squares)()));
    INFO("the standard deviation of the outputs should be 1, it is ", standard_deviation);
    CHECK(std::abs(standard_deviation - 1) < 0.02);
}

TEST_CASE("2.5 write project_fused") {
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

TEST_CASE("2.6 write fold_scale") {
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
