// The backward pass of ViT against differences of the loss, in double.
#include "chapters/27_vision/vision.hpp"
#include "tests/support/finite_differences.hpp"

using namespace llm;
using namespace llm::finite_differences;

TEST_CASE("The gradients of ViT equal finite differences, also with interpolated positions") {
    VitConfig config;
    config.image_height = 2, config.image_width = 4;
    config.patch_size = 2;
    config.num_channels = 3;
    config.hidden_size = C;
    config.intermediate_size = F;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.layer_norm_eps = Real(1e-3);
    VitModel model = empty_vit(config);
    Generator generator(3);
    for (const Parameter& parameter : named_parameters(model))
        for (Real& value : parameter.values) value = generator.next_normal() / 2;

    for (const std::size_t height : {2, 4}) {
        const Tensor4 pictures = randn({2, 3, height, 4}, generator);
        const auto [output, saved] = encoder_forward(model, pictures);
        const Loss<3> loss(output.shape());
        CHECK(loss(model(pictures)) == doctest::Approx(loss(output)));
        VitModel gradient = zeros_like(model);
        encoder_backward(model, saved, loss.weights, gradient);
        const std::vector<Parameter> parameters = named_parameters(model);
        const std::vector<Parameter> gradients = named_parameters(gradient);
        REQUIRE(gradients.size() == parameters.size());
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            // The gradient of a key's bias is 0: it adds the same to all scores of a query.
            if (parameters[p].name.ends_with("k_proj.bias")) continue;
            check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                           [&] { return loss(model(pictures)); });
        }
    }
}
