#include "chapters/06_swiglu/exercise.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

struct Example {
    Generator generator{6};
    Tensor3 gate = randn({2, 3, 5}, generator), up = randn({2, 3, 5}, generator);
};

}  // namespace

TEST_CASE("6.1 find the bug: weights of matching shapes") {
    Generator generator(1);
    const GatedMlp right = make_gated_mlp(4, 6, false, SiLU, generator);
    const Tensor3 hidden_states = randn({2, 3, 4}, generator);
    const GatedMlp loaded =
        from_meta(right.gate_proj.weight, right.down_proj.weight, right.up_proj.weight);
    INFO("w1 is the weight of gate_proj");
    CHECK_CLOSE(loaded(hidden_states), right(hidden_states), 1e-6);
}

TEST_CASE("6.2 predict the product of gate and up") {
    const Vector prediction = predicted_product();
    const Tensor3 gate{{{0, 10, -10}}}, up{{{5, 2, 3}}};
    const Tensor3 product = activate(SiLU, gate) * up;
    INFO("silu(gate) * up");
    CHECK_CLOSE(prediction, reshape(product, {3}), 0.01);
}

TEST_CASE("6.3 predict intermediate sizes") {
    const Vector prediction = predicted_intermediate_sizes();
    const Vector sizes{Real(llama_intermediate_size(768, 256)),
                       Real(llama_intermediate_size(1000, 64))};
    INFO("the intermediate sizes for 768 and for 1000");
    CHECK_CLOSE(prediction, sizes, 0);
}

TEST_CASE("6.4 predict the number of weights") {
    const Vector prediction = predicted_parameters();
    const Vector counts{Real(gated_mlp_parameters(96, 256)), Real(mlp_parameters(96, 384))};
    INFO("the weights of the gated and of the plain MLP");
    CHECK_CLOSE(prediction, counts, 0);
}

TEST_CASE("6.5 write geglu") {
    const Example example;
    INFO("GELU is applied to gate, and not to up");
    CHECK_CLOSE(geglu(example.gate, example.up), activate(GELU, example.gate) * example.up,
                1e-6);
}

TEST_CASE("6.6 write reglu") {
    const Tensor3 gate{{{-1, 2, 0, 3, -4}}}, up{{{1, -2, 3, 0, 5}}};
    const auto [product, density] = reglu(gate, up);
    INFO("gates of 2 and 3 stay, the other three become 0");
    CHECK_CLOSE(product, (Tensor3{{{0, -4, 0, 0, 0}}}), 1e-6);
    CHECK_CLOSE(Vector{density}, Vector{Real(0.4)}, 1e-6);
}

TEST_CASE("6.7 write interleaved_product") {
    Generator generator(7);
    const GatedMlp mlp = make_gated_mlp(4, 6, false, SiLU, generator);
    const Tensor3 hidden_states = randn({2, 3, 4}, generator);
    Matrix rows = xt::zeros<Real>({12, 4});
    for (const auto [f, c] : every_index(6, 4)) {
        rows(2 * f, c) = mlp.gate_proj.weight(f, c);
        rows(2 * f + 1, c) = mlp.up_proj.weight(f, c);
    }
    INFO("the product that the separate matrices give");
    CHECK_CLOSE(interleaved_product({rows, std::nullopt}, hidden_states),
                activate(SiLU, mlp.gate_proj(hidden_states)) * mlp.up_proj(hidden_states),
                1e-6);
}

TEST_CASE("6.8 write clamped_swiglu") {
    const Tensor3 gate{{{-100, -1, 1, 8}}}, up{{{2, 9, -9, 0.5}}};
    INFO("gate at most 7, up from -7 to 7, then swish(gate, 1.702) * (up + 1)");
    const Real b = Real(1.702);
    CHECK_CLOSE(clamped_swiglu(gate, up, 7),
                (Tensor3{{{0, swish(-1, b) * 8, swish(1, b) * -6, swish(7, b) * Real(1.5)}}}),
                1e-6);
}
