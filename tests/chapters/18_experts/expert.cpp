// gpt-oss's expert against PyTorch and its autograd.
#include "chapters/18_experts/expert.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Linear linear_of(const std::string& name) {
    return {fixture<2>("18_experts/clamped_" + name + "_weight"),
            fixture<1>("18_experts/clamped_" + name + "_bias")};
}
void check_gradient(const Linear& gradient, const std::string& name) {
    CHECK_CLOSE(gradient.weight, fixture<2>("18_experts/clamped_" + name + "_weight_gradient"),
                2e-4);
    CHECK_CLOSE(*gradient.bias, fixture<1>("18_experts/clamped_" + name + "_bias_gradient"),
                2e-4);
}

}  // namespace

TEST_CASE("gpt-oss's expert equals PyTorch, and its gradients autograd's") {
    const Expert expert =
        ClampedGatedMlp{linear_of("gate"), linear_of("up"), linear_of("down")};
    const auto [output, activations] =
        expert_forward(expert, fixture<3>("18_experts/clamped_input"));
    CHECK_CLOSE(output, fixture<3>("18_experts/clamped_output"), 1e-3);
    Expert gradient = expert;
    auto& [gate, up, down, alpha, limit] = std::get<ClampedGatedMlp>(gradient);
    for (Linear* linear : {&gate, &up, &down}) {
        linear->weight.fill(0);
        linear->bias->fill(0);
    }
    const Tensor3 input_gradient = expert_backward(
        expert, activations, fixture<3>("18_experts/clamped_output_gradient"), gradient);
    CHECK_CLOSE(input_gradient, fixture<3>("18_experts/clamped_input_gradient"), 1e-3);
    check_gradient(gate, "gate");
    check_gradient(up, "up");
    check_gradient(down, "down");
}

TEST_CASE("the gate is clamped from above only, up on both sides and increased by 1") {
    const Linear identity{{{1}}, Vector{0}};
    const auto output = [&](Real gate_bias, Real up_bias) {
        const ClampedGatedMlp mlp{
            {{{0}}, Vector{gate_bias}}, {{{0}}, Vector{up_bias}}, identity};
        return double(mlp_forward(mlp, xt::ones<Real>({1, 1, 1})).output(0, 0, 0));
    };
    const auto swish = [](double x) { return x / (1 + std::exp(-1.702 * x)); };
    CHECK(output(2, 3) == doctest::Approx(4 * swish(2)));
    CHECK(output(100, 3) == doctest::Approx(4 * swish(7)));
    CHECK(output(2, 100) == doctest::Approx(8 * swish(2)));
    CHECK(output(2, -100) == doctest::Approx(-6 * swish(2)));
    CHECK(output(-9, 3) == doctest::Approx(4 * swish(-9)));  // not swish(-7)
}
