// Pictures: patches, positions of another size, and ViT against PyTorch.
#include "chapters/27_vision/vision.hpp"
#include "chapters/09_full_model/checkpoint.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Tensor4 pictures(const std::string& size) {
    return fixture<4>("27_vision/vit_" + size + "_pixel_values");
}

VitConfig vit_config() {
    VitConfig config;
    config.image_height = 12;
    config.image_width = 20;
    config.patch_size = 4;
    config.hidden_size = 24;
    config.intermediate_size = 14;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 3;
    config.layer_norm_eps = Real(1e-3);
    return config;
}

VitModel vit() {
    VitModel model = empty_vit(vit_config());
    load_parameters(fixture_path("27_vision/vit.safetensors"), named_parameters(model));
    return model;
}

}  // namespace

TEST_CASE("Patches go row by row, and the numbers of one by channel, row and column") {
    const auto [B, channels, rows, columns, P] = std::array<std::size_t, 5>{2, 3, 4, 5, 6};
    const Tensor4 pixel_values = counting({B, channels, rows * P, columns * P});
    const Tensor3 patches = patchify(pixel_values, P);
    REQUIRE(patches.shape() == std::array<std::size_t, 3>{B, rows * columns, channels * P * P});
    for (auto [b, c, y, x] : every_index(B, channels, rows * P, columns * P)) {
        const std::size_t patch = y / P * columns + x / P;
        const std::size_t number = (c * P + y % P) * P + x % P;
        CHECK(patches(b, patch, number) == pixel_values(b, c, y, x));
    }
}

TEST_CASE("Pixels are normalized as by ViTImageProcessor") {
    const Tensor4 pixels = fixture<4>("27_vision/pixels");
    const Vector mean = {Real(0.485), Real(0.456), Real(0.406)},
                 std_dev = {Real(0.229), Real(0.224), Real(0.225)};
    CHECK_CLOSE(normalize_pixels(pixels, mean, std_dev),
                fixture<4>("27_vision/normalized_pixels"), 1e-6);
    CHECK_THROWS_WITH(normalize_pixels(pixels, Vector{1, 2}, std_dev),
                      "reshape: cannot reshape (2,) to (1, 3, 1, 1)");
}

TEST_CASE("Positions are interpolated over the grid, but not that of the class token") {
    const Matrix same = position_weights({3, 5}, {3, 5});
    const Matrix identity = xt::eye<Real>(16);
    CHECK_CLOSE(same, identity, 0);
    const Matrix weights = position_weights({3, 5}, {4, 7});
    REQUIRE(weights.shape() == std::array<std::size_t, 2>{29, 16});
    for (std::size_t n = 0; n < 29; ++n) {
        const Vector row = xt::view(weights, n);
        CHECK(xt::sum(row)() == doctest::Approx(1));
        CHECK(weights(n, 0) == (n == 0 ? 1 : 0));
    }
    // The corner of the larger grid has most of the corner of the other one.
    CHECK(weights(1, 1) > Real(0.5));
    CHECK(weights(28, 15) == doctest::Approx(weights(1, 1)));
}

TEST_CASE("ViT equals PyTorch, also on larger, smaller and wider pictures") {
    for (const std::string size : {"native", "large", "wide"}) {
        INFO(size);
        CHECK_CLOSE(vit()(pictures(size)),
                    fixture<3>("27_vision/vit_" + size + "_last_hidden_state"), 2e-5);
    }
}

TEST_CASE("Without positions, the order of the patches changes nothing but their order") {
    VitModel model = vit();
    const Tensor4 picture = pictures("native");
    Tensor4 shifted = picture;  // by one patch, around the border
    for (auto [b, c, y, x] : every_index(2, 3, 12, 20))
        shifted(b, c, y, (x + 4) % 20) = picture(b, c, y, x);
    const auto class_token = [&](const Tensor4& pixel_values) {
        const Tensor3 states = model(pixel_values);
        return Matrix(xt::view(states, xt::all(), 0));
    };
    CHECK(difference(class_token(shifted), class_token(picture), 1e-2) != "");
    model.embeddings.position_embeddings.fill(0);
    CHECK_CLOSE(class_token(shifted), class_token(picture), 2e-5);
}

TEST_CASE("ViT names sizes that do not fit") {
    CHECK_THROWS_WITH(vit()(xt::zeros<Real>({1, 3, 12, 18})),
                      "patchify: patches of 4 x 4 pixels do not divide 12 x 18");
    CHECK_THROWS_WITH(patchify(xt::zeros<Real>({1, 3, 14, 20}), 4),
                      "patchify: patches of 4 x 4 pixels do not divide 14 x 20");
    CHECK_THROWS_WITH(patchify(xt::zeros<Real>({1, 3, 12, 20}), 0),
                      "patchify: patches of 0 x 0 pixels do not divide 12 x 20");
    const auto message = [](std::size_t VitConfig::*size, std::size_t value) {
        VitConfig config = vit_config();
        config.*size = value;
        try {
            empty_vit(config);
        } catch (const ValueError& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    CHECK(message(&VitConfig::image_width, 22) ==
          "vit: a size is 0, patches of 4 x 4 pixels do not divide 12 x 22, or 3 heads do not "
          "divide a hidden size of 24 into even parts");
    CHECK(message(&VitConfig::image_height, 10) != "no error");
    for (const auto size : {&VitConfig::image_height, &VitConfig::image_width,
                            &VitConfig::patch_size, &VitConfig::num_channels,
                            &VitConfig::intermediate_size, &VitConfig::num_hidden_layers,
                            &VitConfig::num_attention_heads, &VitConfig::hidden_size})
        CHECK(message(size, 0) != "no error");
    for (const auto size :
         {&VitConfig::patch_size, &VitConfig::num_channels, &VitConfig::intermediate_size,
          &VitConfig::num_hidden_layers, &VitConfig::num_attention_heads})
        CHECK(message(size, 1) == "no error");
    CHECK(message(&VitConfig::num_attention_heads, 24) != "no error");
    CHECK(message(&VitConfig::num_attention_heads, 4) == "no error");
}
