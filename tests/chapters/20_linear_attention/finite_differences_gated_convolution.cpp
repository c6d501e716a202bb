// The gradients of the gated short convolution against central differences of a loss, in
// double.
#include "chapters/20_linear_attention/gated_convolution.hpp"
#include "tests/support/finite_differences.hpp"

using namespace llm;
using namespace llm::finite_differences;

TEST_CASE("attention_backward of a gated convolution against central differences") {
    for (const bool bias : {false, true}) {
        CAPTURE(bias);
        Generator generator(1);
        GatedConvolution layer = make_gated_convolution({C, 2, bias}, generator);
        randomize(layer, 2);
        Tensor3 input = random_states(C, 3);
        const PatternAttentionInputs inputs = pattern_attention_inputs({}, T);
        const Loss<3> loss(input.shape());
        const auto [output, saved] = attention_forward(layer, input, inputs);
        GatedConvolution gradient = zeros_of(layer);
        const Tensor3 input_gradient =
            attention_backward(layer, inputs, saved, loss.weights, gradient);
        const auto value = [&] { return loss(layer(input, inputs).hidden_states); };
        check_gradient("input", span_of(input), span_of(input_gradient), value);
        check_parameters(layer, gradient, value);
    }
}

TEST_CASE("forward_backward of a model of gated convolutions against central differences") {
    Generator generator(4);
    const Config config = validate_model(small_config());
    DecoderModel<GatedConvolutionBlock> decoder{
        config, randn({V, C}, generator), {}, random_norm(5), {}};
    for (const std::uint32_t seed : {6, 7})
        decoder.layers.push_back({make_gated_convolution({C, 2, true}, generator),
                                  gated_mlp(SiLU), random_norm(seed), random_norm(seed + 2)});
    const IdMatrix input_ids = {{0, 3, 6}, {2, 2, 5}}, targets = {{3, 6, 1}, {2, 5, 4}};
    auto gradient = zeros_like(decoder);
    forward_backward(decoder, input_ids, targets, gradient);
    const auto parameters = named_parameters(decoder), gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                       [&] { return evaluate_loss(decoder, input_ids, targets); });
}
