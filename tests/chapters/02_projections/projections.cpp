#include <cmath>

#include "chapters/02_projections/projections.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Linear linear_fixture(const std::string& name) {
    return {fixture<2>("02_projections/" + name + "_proj_weight"),
            fixture<1>("02_projections/" + name + "_proj_bias")};
}

// The sample input of the programs and the four projections, initialized in this order.
struct Sample {
    Generator generator{77};
    Tensor3 hidden_states = randn({2, 10, 128}, generator);
    Projections projections = make_projections(validate(Config{}, 10), generator);
};

}  // namespace

TEST_CASE("linear: output feature o is the dot product of row o of the weight with the input") {
    const Linear linear{Matrix{{1, 2, 3}, {10, 20, 30}}, Vector{0.5, -0.5}};
    CHECK_CLOSE(linear(Matrix{{1, 0, 0}, {0, 1, 1}}), (Matrix{{1.5, 9.5}, {5.5, 49.5}}), 0);
}

TEST_CASE("linear: tokens are independent, a batch gives the same outputs as its rows") {
    Generator generator(1);
    const Linear linear = make_linear(4, 7, true, generator);
    const Tensor3 inputs = randn({2, 3, 4}, generator);
    const Tensor3 outputs = linear(inputs);
    for (const auto [b, t] : every_index(2, 3)) {
        const Matrix token = xt::view(inputs, b, xt::range(t, t + 1), xt::all());
        const Matrix expected = xt::view(outputs, b, xt::range(t, t + 1), xt::all());
        CHECK_CLOSE(linear(token), expected, 1e-6);
    }
}

TEST_CASE("linear with bias equals PyTorch's nn.Linear") {
    const Tensor3 states = fixture<3>("02_projections/states");
    for (const std::string name : {"q", "k", "v"})
        CHECK_CLOSE(linear_fixture(name)(states),
                    fixture<3>("02_projections/" + name + "_states"), 1e-5);
}

TEST_CASE("linear: the error states both shapes when they do not match") {
    const Linear linear{Matrix(xt::ones<Real>({3, 5})), std::nullopt};
    CHECK_THROWS_WITH(linear(counting({2, 4})),
                      "linear: an input of (2, 4) does not match a weight of (3, 5)");
    CHECK_THROWS_AS(linear(counting({2, 2, 3})), ValueError);
    const Linear one_bias{Matrix(xt::ones<Real>({3, 5})), Vector{1}};
    CHECK_THROWS_WITH(one_bias(counting({2, 5})),
                      "linear: a bias of (1,) does not match a weight of (3, 5)");
}

TEST_CASE("make_linear equals PyTorch's initialization: weight, then bias") {
    Generator generator(5);
    randn({2, 5, 20}, generator);  // PyTorch generated the fixture's states first
    for (const auto& [name, in_features, out_features] :
         {std::tuple<std::string, std::size_t, std::size_t>{"q", 20, 24},
          {"k", 20, 12},
          {"v", 20, 12},
          {"o", 24, 20}}) {
        const Linear linear = make_linear(in_features, out_features, true, generator);
        const Linear expected = linear_fixture(name);
        CHECK_CLOSE(linear.weight, expected.weight, 1e-7);
        CHECK_CLOSE(*linear.bias, *expected.bias, 1e-7);
    }
}

TEST_CASE("make_linear: the bound depends on in_features, not on out_features") {
    Generator generator(2);
    const Linear linear = make_linear(400, 9, false, generator);
    const Real largest = xt::amax(xt::abs(linear.weight))();
    CHECK(largest <= Real(1) / 20);
    CHECK(largest > Real(0.99) / 20);
    CHECK(!linear.bias);
}

TEST_CASE("make_linear: one input feature and one output feature are enough") {
    Generator generator(77);
    const Linear linear = make_linear(1, 1, false, generator);
    CHECK(linear(Matrix{{3}})(0, 0) == 3 * linear.weight(0, 0));
    CHECK(std::abs(linear.weight(0, 0)) <= 1);
}

TEST_CASE("make_linear: 0 features are an error") {
    Generator generator(1);
    CHECK_THROWS_WITH(make_linear(0, 4, false, generator),
                      "linear: cannot map 0 features to 4");
    CHECK_THROWS_AS(make_linear(4, 0, false, generator), ValueError);
}

TEST_CASE("num_parameters and describe include the bias") {
    Generator generator(1);
    const Linear without = make_linear(128, 32, false, generator);
    CHECK(num_parameters(without) == 4096);
    CHECK(describe(without) == "Linear(in_features=128, out_features=32, bias=False)");
    const Linear with = make_linear(3, 2, true, generator);
    CHECK(num_parameters(with) == 8);
    CHECK(describe(with) == "Linear(in_features=3, out_features=2, bias=True)");
}

TEST_CASE("make_projections equals PyTorch's initialization in the order q, k, v, o") {
    const Sample sample;
    const auto first_rows = [](const Linear& linear) -> Matrix {
        return xt::view(linear.weight, xt::range(0, 4), xt::all());
    };
    CHECK_CLOSE(first_rows(sample.projections.q_proj),
                fixture<2>("02_projections/demo_q_proj_weight"), 1e-7);
    CHECK_CLOSE(first_rows(sample.projections.o_proj),
                fixture<2>("02_projections/demo_o_proj_weight"), 1e-7);
}

TEST_CASE("queries, keys and values of the sample input equal PyTorch's") {
    const auto [generator, hidden_states, projections] = Sample{};
    CHECK_CLOSE(projections.q_proj(hidden_states),
                fixture<3>("02_projections/demo_query_states"), 1e-5);
    CHECK_CLOSE(projections.k_proj(hidden_states), fixture<3>("02_projections/demo_key_states"),
                1e-5);
    CHECK_CLOSE(projections.v_proj(hidden_states),
                fixture<3>("02_projections/demo_value_states"), 1e-5);
}

TEST_CASE("make_projections: widths are H times D and Hkv times D, not hidden_size") {
    Generator generator(1);
    const Config config{.hidden_size = 20,
                        .num_attention_heads = 6,
                        .num_key_value_heads = 3,
                        .head_dim = 4,
                        .attention_bias = AttentionBias::qkvo};
    const Projections projections = make_projections(config, generator);
    CHECK(dims(projections.q_proj.weight) == std::array<std::size_t, 2>{24, 20});
    CHECK(dims(projections.k_proj.weight) == std::array<std::size_t, 2>{12, 20});
    CHECK(dims(projections.v_proj.weight) == std::array<std::size_t, 2>{12, 20});
    CHECK(dims(projections.o_proj.weight) == std::array<std::size_t, 2>{20, 24});
    for (const Linear& linear :
         {projections.q_proj, projections.k_proj, projections.v_proj, projections.o_proj}) {
        REQUIRE(linear.bias.has_value());
        CHECK(linear.bias->size() == linear.weight.shape(0));
    }
}

TEST_CASE("make_projections: attention_bias qkv gives o_proj no bias") {
    Generator generator(1);
    const Projections projections =
        make_projections(validate(Config{.attention_bias = AttentionBias::qkv}, 1), generator);
    for (const Linear& linear : {projections.q_proj, projections.k_proj, projections.v_proj})
        CHECK(linear.bias.has_value());
    CHECK(!projections.o_proj.bias);
}
