#include <cmath>

#include "chapters/06_swiglu/mlp.hpp"
#include "tests/check.hpp"

using namespace llm;

namespace {

Vector on_grid(Activation activation) {
    Vector values = fixture<1>("06_swiglu/grid");
    for (Real& value : values) value = activation(value);
    return values;
}

Linear without_bias(const std::string& name) {
    return {fixture<2>("06_swiglu/" + name), std::nullopt};
}

GatedMlp pinned_mlp(Activation activation) {
    return {without_bias("gate_proj"), without_bias("up_proj"), without_bias("down_proj"),
            activation};
}

const std::size_t C = 20, F = 28;

}  // namespace

TEST_CASE("activations equal PyTorch's from -200 to 200") {
    CHECK_CLOSE(on_grid(sigmoid), fixture<1>("06_swiglu/sigmoid"), 1e-6);
    CHECK_CLOSE(on_grid(relu), fixture<1>("06_swiglu/relu"), 0);
    // Relative to the largest value, 200, so that every value is within 1e-6.
    CHECK_CLOSE(on_grid(gelu), fixture<1>("06_swiglu/gelu"), 5e-9);
    CHECK_CLOSE(on_grid(gelu_tanh), fixture<1>("06_swiglu/gelu_tanh"), 5e-9);
    CHECK_CLOSE(on_grid(silu), fixture<1>("06_swiglu/silu"), 5e-9);
    CHECK_CLOSE(on_grid([](Real x) { return swish(x, Real(1.702)); }),
                fixture<1>("06_swiglu/swish"), 5e-9);
}

TEST_CASE("derivatives equal those of PyTorch's autograd") {
    CHECK_CLOSE(on_grid(relu_derivative), fixture<1>("06_swiglu/relu_derivative"), 0);
    CHECK_CLOSE(on_grid(gelu_derivative), fixture<1>("06_swiglu/gelu_derivative"), 1e-6);
    CHECK_CLOSE(on_grid([](Real x) { return swish_derivative(x, 1); }),
                fixture<1>("06_swiglu/silu_derivative"), 1e-6);
    CHECK_CLOSE(on_grid([](Real x) { return swish_derivative(x, Real(1.702)); }),
                fixture<1>("06_swiglu/swish_derivative"), 1e-6);
    CHECK(relu_derivative(0) == 0);
}

TEST_CASE("swish lies between half the input and relu") {
    for (const Real x : {Real(-2), Real(-0.5), Real(0.5), Real(2)}) {
        CHECK(swish(x, 0) == x / 2);
        CHECK(swish(x, 1) == silu(x));
        CHECK(swish(x, 100) == doctest::Approx(relu(x)));
    }
}

TEST_CASE("activate bends every number for itself, and leaves the input alone") {
    const Tensor3 states{{{-1, 2, -3}, {4, -5, 6}}};
    CHECK_CLOSE(activate(relu, states), (Tensor3{{{0, 2, 0}, {4, 0, 6}}}), 0);
    CHECK(states(0, 0, 0) == -1);
}

TEST_CASE("Mlp equals PyTorch: up, activation, down") {
    const Tensor3 hidden_states = fixture<3>("06_swiglu/hidden_states");
    Mlp mlp{without_bias("up_proj"), without_bias("down_proj"), relu};
    CHECK_CLOSE(mlp(hidden_states), fixture<3>("06_swiglu/plain_relu"), 1e-5);
    mlp.activation = gelu_tanh;
    CHECK_CLOSE(mlp(hidden_states), fixture<3>("06_swiglu/plain_gelu_tanh"), 1e-5);
}

TEST_CASE("GatedMlp equals PyTorch: GLU, ReGLU, GeGLU, SwiGLU") {
    const Tensor3 hidden_states = fixture<3>("06_swiglu/hidden_states");
    CHECK_CLOSE(pinned_mlp(sigmoid)(hidden_states), fixture<3>("06_swiglu/gated_sigmoid"),
                1e-5);
    CHECK_CLOSE(pinned_mlp(relu)(hidden_states), fixture<3>("06_swiglu/gated_relu"), 1e-5);
    CHECK_CLOSE(pinned_mlp(gelu)(hidden_states), fixture<3>("06_swiglu/gated_gelu"), 1e-5);
    CHECK_CLOSE(pinned_mlp(silu)(hidden_states), fixture<3>("06_swiglu/gated_silu"), 1e-5);
}

TEST_CASE("the gate is what the activation bends: a closed gate lets nothing pass") {
    // One number per token: gate -20 x, up x, down 1.
    const GatedMlp mlp{{Matrix{{-20}}, {}}, {Matrix{{1}}, {}}, {Matrix{{1}}, {}}, silu};
    const Tensor3 output = mlp(Tensor3{{{-1}, {1}}});
    CHECK(output(0, 0, 0) == doctest::Approx(-20));  // gate 20, wide open; up -1
    CHECK(std::abs(output(0, 1, 0)) < Real(1e-6));   // gate -20, closed; up 1
}

TEST_CASE("the walk: gate, up, product and output equal PyTorch's") {
    Generator generator(77);
    const Tensor3 hidden_states = randn({2, 10, 128}, generator);
    const GatedMlp mlp = make_gated_mlp(128, 352, false, silu, generator);
    CHECK_CLOSE(mlp.gate_proj(hidden_states), fixture<3>("06_swiglu/walk_gate"), 1e-5);
    CHECK_CLOSE(mlp.up_proj(hidden_states), fixture<3>("06_swiglu/walk_up"), 1e-5);
    const Tensor3 product =
        activate(silu, mlp.gate_proj(hidden_states)) * mlp.up_proj(hidden_states);
    CHECK_CLOSE(product, fixture<3>("06_swiglu/walk_product"), 1e-5);
    CHECK_CLOSE(mlp(hidden_states), fixture<3>("06_swiglu/walk_output"), 1e-5);

    const Mlp plain = make_mlp(128, 512, true, relu, generator);
    CHECK_CLOSE(plain(hidden_states), fixture<3>("06_swiglu/walk_plain_output"), 1e-5);
}

TEST_CASE("make_gated_mlp draws gate, down, up, each weight before its bias") {
    Generator generator(6);
    const GatedMlp mlp = make_gated_mlp(C, F, true, silu, generator);
    CHECK_CLOSE(mlp(fixture<3>("06_swiglu/hidden_states")), fixture<3>("06_swiglu/biased"),
                1e-5);
    CHECK((make_gated_mlp(C, F, false, gelu, generator).activation == gelu));
    CHECK((make_mlp(C, F, false, gelu, generator).activation == gelu));
    CHECK_FALSE(make_mlp(C, F, false, gelu, generator).up_proj.bias.has_value());
}

TEST_CASE("activations unless others are asked for: relu, and silu behind a gate") {
    CHECK((Mlp{}.activation == relu));
    CHECK((GatedMlp{}.activation == silu));
    CHECK((FusedGatedMlp{}.activation == silu));
}

TEST_CASE("fuse: one product instead of two, the same result") {
    const Tensor3 hidden_states = fixture<3>("06_swiglu/hidden_states");
    for (const Activation activation : {silu, relu}) {
        const FusedGatedMlp fused = fuse(pinned_mlp(activation));
        CHECK(dims(fused.gate_up_proj.weight) == std::array{2 * F, C});
        CHECK_CLOSE(fused(hidden_states), pinned_mlp(activation)(hidden_states), 1e-6);
    }
    // Gate first, as in the weights of Phi-3.
    CHECK(fuse(pinned_mlp(silu)).gate_up_proj.weight(F - 1, 3) ==
          fixture<2>("06_swiglu/gate_proj")(F - 1, 3));
}

TEST_CASE("fuse names both shapes when gate and up do not fit, and refuses a bias") {
    Generator generator(1);
    GatedMlp mlp = make_gated_mlp(4, 6, false, silu, generator);
    mlp.up_proj = make_linear(4, 5, false, generator);
    CHECK_THROWS_WITH_AS(fuse(mlp),
                         "fuse: gate (6, 4) and up (5, 4) must have one shape and no bias",
                         ShapeError);
    mlp.up_proj = make_linear(4, 6, true, generator);
    CHECK_THROWS_AS(fuse(mlp), ShapeError);
    std::swap(mlp.up_proj, mlp.gate_proj);
    CHECK_THROWS_AS(fuse(mlp), ShapeError);
}

TEST_CASE("GatedMlp names both shapes when gate and up do not fit") {
    Generator generator(1);
    GatedMlp mlp = make_gated_mlp(4, 6, false, silu, generator);
    mlp.up_proj = make_linear(4, 5, false, generator);
    CHECK_THROWS_WITH_AS(mlp(counting({1, 2, 4})),
                         "(1, 2, 6) * (1, 2, 5): the shapes do not fit", ShapeError);
}

TEST_CASE("parameters are counted as the tensors have them") {
    Generator generator(1);
    const GatedMlp gated = make_gated_mlp(C, F, false, silu, generator);
    CHECK(gated_mlp_parameters(C, F) == num_parameters(gated.gate_proj) +
                                            num_parameters(gated.up_proj) +
                                            num_parameters(gated.down_proj));
    const Mlp plain = make_mlp(C, F, false, relu, generator);
    CHECK(mlp_parameters(C, F) ==
          num_parameters(plain.up_proj) + num_parameters(plain.down_proj));
}

TEST_CASE("two thirds: three matrices of 8/3 C hold what two of 4 C hold") {
    CHECK(gated_mlp_parameters(384, llama_intermediate_size(384, 1)) ==
          mlp_parameters(384, 4 * 384));
}

TEST_CASE("llama_intermediate_size gives the published sizes") {
    CHECK(llama_intermediate_size(4096, 256) == 11008);        // Llama-2-7B
    CHECK(llama_intermediate_size(5120, 256) == 13824);        // Llama-2-13B
    CHECK(llama_intermediate_size(8192, 4096, 1.3) == 28672);  // Llama-2-70B
    CHECK(llama_intermediate_size(4096, 1024, 1.3) == 14336);  // Llama-3-8B
    CHECK(llama_intermediate_size(2048, 256, 1.5) == 8192);    // Llama-3.2-1B
    CHECK(llama_intermediate_size(4096, 1) == 10922);          // cut off, not rounded
    CHECK(llama_intermediate_size(4096, 1, 1.3) == 14198);
    CHECK(llama_intermediate_size(5120, 1) == 13653);
}

TEST_CASE("round_up leaves a multiple alone") {
    CHECK(round_up(1536, 32) == 1536);
    CHECK(round_up(1537, 32) == 1568);
    CHECK(round_up(1535, 32) == 1536);
    CHECK(round_up(1, 256) == 256);
    CHECK(round_up(7, 1) == 7);
    CHECK_THROWS_WITH_AS(round_up(7, 0), "round_up: 7 has no multiple of 0", ShapeError);
}

TEST_CASE("dropout of hidden states: zeros and grown numbers, the mean stays") {
    Generator generator(3);
    const Tensor3 states = xt::ones<Real>({4, 50, 100});
    const Tensor3 kept = dropout(states, Real(0.2), generator);
    double sum = 0;
    for (const Real number : kept) {
        CHECK((number == 0 || number == doctest::Approx(1.25)));
        sum += number;
    }
    CHECK(sum / 20000 == doctest::Approx(1).epsilon(0.02));  // standard error 0.0035

    Generator same(3);
    CHECK_CLOSE(dropout(states, Real(0.2), same), kept, 0);
    CHECK_CLOSE(dropout(counting({2, 3, 5}), 0, generator), counting({2, 3, 5}), 0);
    CHECK_THROWS_AS(dropout(states, 1, generator), ShapeError);
}
