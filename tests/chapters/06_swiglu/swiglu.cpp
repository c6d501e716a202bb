#include <cmath>
#include <numbers>

#include "chapters/05_gqa/dropout.hpp"
#include "chapters/06_swiglu/mlp.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Vector on_grid(auto function) {
    Vector values = fixture<1>("06_swiglu/grid");
    for (Real& value : values) value = function(value);
    return values;
}

Linear without_bias(const std::string& name) {
    return {fixture<2>("06_swiglu/" + name), std::nullopt};
}

GatedMlp pinned_mlp(const Activation& activation) {
    return {without_bias("gate_proj"), without_bias("up_proj"), without_bias("down_proj"),
            activation};
}

const std::size_t C = 20, F = 28;

// The activation functions in double, written independently of the lesson.
double sigmoid_in_double(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_in_double(double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_tanh_in_double(double x) {
    const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * std::pow(x, 3));
    return x / 2 * (1 + std::tanh(inner));
}
double silu_in_double(double x) { return x * sigmoid_in_double(x); }

// The largest difference between a derivative and the central difference of the function in
// double, for x from -8 to 8. The error of the central difference itself is below 1e-9.
double largest_derivative_error(auto derivative, auto function_in_double) {
    double largest = 0;
    const double h = 1e-5;
    for (int i = -800; i <= 800; ++i) {
        const Real x = static_cast<Real>(i) / 100;
        const double difference =
            (function_in_double(double(x) + h) - function_in_double(double(x) - h)) / (2 * h);
        largest = std::max(largest, std::abs(double(derivative(x)) - difference));
    }
    return largest;
}

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
    CHECK_CLOSE(on_grid(sigmoid_derivative), fixture<1>("06_swiglu/sigmoid_derivative"), 1e-6);
    CHECK_CLOSE(on_grid(relu_derivative), fixture<1>("06_swiglu/relu_derivative"), 0);
    CHECK_CLOSE(on_grid(gelu_derivative), fixture<1>("06_swiglu/gelu_derivative"), 1e-6);
    CHECK_CLOSE(on_grid(gelu_tanh_derivative), fixture<1>("06_swiglu/gelu_tanh_derivative"),
                1e-6);
    CHECK_CLOSE(on_grid(silu_derivative), fixture<1>("06_swiglu/silu_derivative"), 1e-6);
    CHECK_CLOSE(on_grid([](Real x) { return swish_derivative(x, 1); }),
                fixture<1>("06_swiglu/silu_derivative"), 1e-6);
    CHECK_CLOSE(on_grid([](Real x) { return swish_derivative(x, Real(1.702)); }),
                fixture<1>("06_swiglu/swish_derivative"), 1e-6);
    CHECK(relu_derivative(0) == 0);
}

TEST_CASE("derivatives equal central differences of the functions in double") {
    CHECK(largest_derivative_error(sigmoid_derivative, sigmoid_in_double) < 2e-7);
    CHECK(largest_derivative_error(gelu_derivative, gelu_in_double) < 1e-6);
    CHECK(largest_derivative_error(gelu_tanh_derivative, gelu_tanh_in_double) < 1e-6);
    CHECK(largest_derivative_error(silu_derivative, silu_in_double) < 1e-6);
}

TEST_CASE("derivatives equal their formulas in double") {
    for (int i = -400; i <= 400; ++i) {
        const Real x = static_cast<Real>(i) / 50;
        const double sigma = sigmoid_in_double(x), z = double(x);
        CHECK(std::abs(sigmoid_derivative(x) - sigma * (1 - sigma)) < 2e-7);
        CHECK(std::abs(silu_derivative(x) - sigma * (1 + z * (1 - sigma))) < 1e-6);

        // The derivative of tanh(u) is u' / cosh(u)².
        const double root = std::sqrt(2 / std::numbers::pi);
        const double u = root * (z + 0.044715 * z * z * z);
        const double inner_derivative = root * (1 + 3 * 0.044715 * z * z);
        const double expected =
            (1 + std::tanh(u)) / 2 + z / 2 * inner_derivative / (std::cosh(u) * std::cosh(u));
        CHECK(std::abs(gelu_tanh_derivative(x) - expected) < 1e-6);
    }
}

TEST_CASE("derivatives are finite and constant far from 0") {
    for (const Real x : {Real(100), Real(200)}) {
        CHECK(sigmoid_derivative(x) == 0);
        CHECK(sigmoid_derivative(-x) == 0);
        CHECK(gelu_derivative(x) == 1);
        CHECK(gelu_derivative(-x) == 0);
        CHECK(gelu_tanh_derivative(x) == 1);
        CHECK(gelu_tanh_derivative(-x) == 0);
        CHECK(silu_derivative(x) == 1);
        CHECK(silu_derivative(-x) == 0);
    }
}

TEST_CASE("each Activation has Hugging Face's name, a function and its derivative") {
    CHECK(Sigmoid.name == "sigmoid");
    CHECK(ReLU.name == "relu");
    CHECK(GELU.name == "gelu");
    CHECK(GELUTanh.name == "gelu_pytorch_tanh");
    CHECK(SiLU.name == "silu");
    for (const Real x : {Real(-1.5), Real(-0.25), Real(0.75), Real(2)}) {
        CHECK(Sigmoid.function(x) == sigmoid(x));
        CHECK(ReLU.function(x) == relu(x));
        CHECK(GELU.function(x) == gelu(x));
        CHECK(GELUTanh.function(x) == gelu_tanh(x));
        CHECK(SiLU.function(x) == silu(x));
        CHECK(Sigmoid.derivative(x) == sigmoid_derivative(x));
        CHECK(ReLU.derivative(x) == relu_derivative(x));
        CHECK(GELU.derivative(x) == gelu_derivative(x));
        CHECK(GELUTanh.derivative(x) == gelu_tanh_derivative(x));
        CHECK(SiLU.derivative(x) == silu_derivative(x));
    }
}

TEST_CASE("swish is x/2 for beta 0, SiLU for beta 1 and close to ReLU for beta 100") {
    for (const Real x : {Real(-2), Real(-0.5), Real(0.5), Real(2)}) {
        CHECK(swish(x, 0) == x / 2);
        CHECK(swish(x, 1) == silu(x));
        CHECK(swish(x, 100) == doctest::Approx(relu(x)));
    }
}

TEST_CASE("activate applies the function elementwise and does not change its input") {
    const Tensor3 states{{{-1, 2, -3}, {4, -5, 6}}};
    CHECK_CLOSE(activate(ReLU, states), (Tensor3{{{0, 2, 0}, {4, 0, 6}}}), 0);
    CHECK(states(0, 0, 0) == -1);
}

TEST_CASE("Mlp equals PyTorch: up projection, activation, down projection") {
    const Tensor3 hidden_states = fixture<3>("06_swiglu/hidden_states");
    Mlp mlp{without_bias("up_proj"), without_bias("down_proj"), ReLU};
    CHECK_CLOSE(mlp(hidden_states), fixture<3>("06_swiglu/plain_relu"), 1e-5);
    mlp.activation = GELUTanh;
    CHECK_CLOSE(mlp(hidden_states), fixture<3>("06_swiglu/plain_gelu_tanh"), 1e-5);
}

TEST_CASE("GatedMlp equals PyTorch: GLU, ReGLU, GeGLU, SwiGLU") {
    const Tensor3 hidden_states = fixture<3>("06_swiglu/hidden_states");
    CHECK_CLOSE(pinned_mlp(Sigmoid)(hidden_states), fixture<3>("06_swiglu/gated_sigmoid"),
                1e-5);
    CHECK_CLOSE(pinned_mlp(ReLU)(hidden_states), fixture<3>("06_swiglu/gated_relu"), 1e-5);
    CHECK_CLOSE(pinned_mlp(GELU)(hidden_states), fixture<3>("06_swiglu/gated_gelu"), 1e-5);
    CHECK_CLOSE(pinned_mlp(SiLU)(hidden_states), fixture<3>("06_swiglu/gated_silu"), 1e-5);
}

TEST_CASE("GatedMlp applies the activation to gate, and not to up") {
    // One feature per token: gate -20 x, up x, down 1.
    const GatedMlp mlp{{Matrix{{-20}}, {}}, {Matrix{{1}}, {}}, {Matrix{{1}}, {}}, SiLU};
    const Tensor3 output = mlp(Tensor3{{{-1}, {1}}});
    CHECK(output(0, 0, 0) == doctest::Approx(-20));  // silu(20) is 20; up is -1
    CHECK(std::abs(output(0, 1, 0)) < Real(1e-6));   // silu(-20) is almost 0; up is 1
}

TEST_CASE("the program's gate, up, product and output equal PyTorch's") {
    Generator generator(77);
    const Tensor3 hidden_states = randn({2, 10, 128}, generator);
    const GatedMlp mlp = make_gated_mlp(128, 352, false, SiLU, generator);
    CHECK_CLOSE(mlp.gate_proj(hidden_states), fixture<3>("06_swiglu/demo_gate"), 1e-5);
    CHECK_CLOSE(mlp.up_proj(hidden_states), fixture<3>("06_swiglu/demo_up"), 1e-5);
    const Tensor3 product =
        activate(SiLU, mlp.gate_proj(hidden_states)) * mlp.up_proj(hidden_states);
    CHECK_CLOSE(product, fixture<3>("06_swiglu/demo_product"), 1e-5);
    CHECK_CLOSE(mlp(hidden_states), fixture<3>("06_swiglu/demo_output"), 1e-5);

    const Mlp plain = make_mlp(128, 512, true, ReLU, generator);
    CHECK_CLOSE(plain(hidden_states), fixture<3>("06_swiglu/demo_plain_output"), 1e-5);
}

TEST_CASE("make_gated_mlp initializes gate, down, up, each weight before its bias") {
    Generator generator(6);
    const GatedMlp mlp = make_gated_mlp(C, F, true, SiLU, generator);
    CHECK_CLOSE(mlp(fixture<3>("06_swiglu/hidden_states")), fixture<3>("06_swiglu/biased"),
                1e-5);
    CHECK(make_gated_mlp(C, F, false, GELU, generator).activation.name == "gelu");
    CHECK(make_mlp(C, F, false, GELU, generator).activation.name == "gelu");
    CHECK_FALSE(make_mlp(C, F, false, GELU, generator).up_proj.bias.has_value());
}

TEST_CASE("the default activation is ReLU for Mlp and SiLU for gated MLPs") {
    CHECK(Mlp{}.activation.name == "relu");
    CHECK(GatedMlp{}.activation.name == "silu");
    CHECK(FusedGatedMlp{}.activation.name == "silu");
}

TEST_CASE("fuse: one matrix product instead of two, the same result") {
    const Tensor3 hidden_states = fixture<3>("06_swiglu/hidden_states");
    for (const Activation& activation : {SiLU, ReLU}) {
        const FusedGatedMlp fused = fuse(pinned_mlp(activation));
        CHECK(dims(fused.gate_up_proj.weight) == std::array{2 * F, C});
        CHECK_CLOSE(fused(hidden_states), pinned_mlp(activation)(hidden_states), 1e-6);
    }
    // Gate first, as in the weights of Phi-3.
    CHECK(fuse(pinned_mlp(SiLU)).gate_up_proj.weight(F - 1, 3) ==
          fixture<2>("06_swiglu/gate_proj")(F - 1, 3));
}

TEST_CASE("fuse throws, with both shapes, if gate and up differ in shape or have a bias") {
    Generator generator(1);
    GatedMlp mlp = make_gated_mlp(4, 6, false, SiLU, generator);
    mlp.up_proj = make_linear(4, 5, false, generator);
    CHECK_THROWS_WITH_AS(fuse(mlp),
                         "fuse: gate (6, 4) and up (5, 4) must have the same shape and no bias",
                         ValueError);
    mlp.up_proj = make_linear(4, 6, true, generator);
    CHECK_THROWS_AS(fuse(mlp), ValueError);
    std::swap(mlp.up_proj, mlp.gate_proj);
    CHECK_THROWS_AS(fuse(mlp), ValueError);
}

TEST_CASE("GatedMlp throws, with both shapes, if gate and up differ in shape") {
    Generator generator(1);
    GatedMlp mlp = make_gated_mlp(4, 6, false, SiLU, generator);
    mlp.up_proj = make_linear(4, 5, false, generator);
    CHECK_THROWS_WITH_AS(mlp(counting({1, 2, 4})),
                         "(1, 2, 6) * (1, 2, 5): the shapes cannot be broadcast together",
                         ValueError);
}

TEST_CASE("mlp_parameters and gated_mlp_parameters count the elements of the matrices") {
    Generator generator(1);
    const GatedMlp gated = make_gated_mlp(C, F, false, SiLU, generator);
    CHECK(gated_mlp_parameters(C, F) == num_parameters(gated.gate_proj) +
                                            num_parameters(gated.up_proj) +
                                            num_parameters(gated.down_proj));
    const Mlp plain = make_mlp(C, F, false, ReLU, generator);
    CHECK(mlp_parameters(C, F) ==
          num_parameters(plain.up_proj) + num_parameters(plain.down_proj));
}

TEST_CASE("three matrices with F = 8/3 C have as many parameters as two with F = 4 C") {
    CHECK(gated_mlp_parameters(384, llama_intermediate_size(384, 1)) ==
          mlp_parameters(384, 4 * 384));
}

TEST_CASE("llama_intermediate_size gives the published sizes") {
    CHECK(llama_intermediate_size(4096, 256) == 11008);        // Llama-2-7B
    CHECK(llama_intermediate_size(5120, 256) == 13824);        // Llama-2-13B
    CHECK(llama_intermediate_size(8192, 4096, 1.3) == 28672);  // Llama-2-70B
    CHECK(llama_intermediate_size(4096, 1024, 1.3) == 14336);  // Llama-3-8B
    CHECK(llama_intermediate_size(2048, 256, 1.5) == 8192);    // Llama-3.2-1B
    CHECK(llama_intermediate_size(4096, 1) == 10922);          // rounded down
    CHECK(llama_intermediate_size(4096, 1, 1.3) == 14198);
    CHECK(llama_intermediate_size(5120, 1) == 13653);
}

TEST_CASE("round_up gives the next multiple and does not change a multiple") {
    CHECK(round_up(1536, 32) == 1536);
    CHECK(round_up(1537, 32) == 1568);
    CHECK(round_up(1535, 32) == 1536);
    CHECK(round_up(1, 256) == 256);
    CHECK(round_up(7, 1) == 7);
    CHECK_THROWS_WITH_AS(round_up(7, 0), "round_up: cannot round 7 up to a multiple of 0",
                         ValueError);
}

TEST_CASE("dropout of hidden states: zeros and scaled elements with the same mean") {
    Generator generator(3);
    const Tensor3 states = xt::ones<Real>({4, 50, 100});
    const Tensor3 dropped = dropout(states, Real(0.2), generator);
    double sum = 0;
    for (const Real element : dropped) {
        CHECK((element == 0 || element == doctest::Approx(1.25)));
        sum += element;
    }
    CHECK(sum / 20000 == doctest::Approx(1).epsilon(0.02));  // standard error 0.0035

    Generator same(3);
    CHECK_CLOSE(dropout(states, Real(0.2), same), dropped, 0);
    CHECK_CLOSE(dropout(counting({2, 3, 5}), 0, generator), counting({2, 3, 5}), 0);
    CHECK_THROWS_AS(dropout(states, 1, generator), ValueError);
}
