// A variant of blocks does what the block that it holds does.
#include "chapters/experiments/ablation_model.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

TEST_CASE("a variant of blocks: forward with dropout, and backward, as the block itself") {
    Config config = small_config();
    config.attention_dropout = Real(0.5);
    Generator generator(4);
    const Model model = make_model(config, generator);
    const PreNormBlock& block = model.layers[0];
    const AblationBlock variant = block;
    const Tensor3 input = randn({2, 5, 16}, generator);
    const AttentionInputs inputs = causal_attention_inputs(model.rotary_table(5), 2, 5);
    Generator dropout(7), same(7);
    const auto [output, activations] = block_forward(variant, input, inputs, &dropout);
    const auto [block_output, block_activations] = block_forward(block, input, inputs, &same);
    CHECK_CLOSE(output, block_output, 0);
    CHECK(difference(output, variant(input, inputs).hidden_states, 1e-3) != "");

    AblationBlock gradient = zeros_like(model).layers[0];
    PreNormBlock expected_gradient = zeros_like(model).layers[0];
    CHECK_CLOSE(block_backward(variant, inputs, activations, output, gradient),
                block_backward(block, inputs, block_activations, output, expected_gradient), 0);
    ParameterList parameters, expected;
    add_parameters(parameters, "layer", gradient);
    add_parameters(expected, "layer", expected_gradient);
    check_parameters(parameters, expected);
}
