#include "chapters/27_vision/vision.hpp"

#include "chapters/01_masking/masking.hpp"
#include "common/numbers/interpolation.hpp"

namespace llm {

PatchGrid grid_of(const Tensor4& pixel_values, std::size_t patch_size) {
    return {pixel_values.shape(2) / patch_size, pixel_values.shape(3) / patch_size};
}

Tensor4 normalize_pixels(const Tensor4& pixels, const Vector& image_mean,
                         const Vector& image_std) {
    const std::size_t channels = pixels.shape(1);
    const Tensor4 centered = pixels / Real(255) - reshape(image_mean, {1, channels, 1, 1});
    return centered / reshape(image_std, {1, channels, 1, 1});
}

Tensor3 patchify(const Tensor4& pixel_values, std::size_t patch_size) {
    const auto [B, channels, height, width] = dims(pixel_values);
    const std::size_t P = patch_size;
    require(P > 0 && height % P == 0 && width % P == 0,
            "patchify: patches of {0} x {0} pixels do not divide {1} x {2}", P, height, width);
    // Read each side as patches of P pixels. The order of the numbers stays.
    const xt::xtensor<Real, 6> by_row =  // (B, channels, rows, P, columns, P)
        reshape(pixel_values, {B, channels, height / P, P, width / P, P});
    // Bring the axes of the grid forward, so that the numbers of a patch stand together.
    const xt::xtensor<Real, 6> by_patch =  // (B, rows, columns, channels, P, P)
        xt::transpose(by_row, {0, 2, 4, 1, 3, 5});
    return reshape(by_patch, {B, height / P * (width / P), channels * P * P});
}

Matrix position_weights(const PatchGrid& from, const PatchGrid& to) {
    const Matrix rows = cubic_weights(from.rows, to.rows);
    const Matrix columns = cubic_weights(from.columns, to.columns);
    const std::size_t N = from.rows * from.columns, new_N = to.rows * to.columns;
    Matrix weights = xt::zeros<Real>({1 + new_N, 1 + N});
    weights(0, 0) = 1;
    for (std::size_t n = 0; n < new_N; ++n)
        for (std::size_t m = 0; m < N; ++m)
            weights(1 + n, 1 + m) = rows(n / to.columns, m / from.columns) *
                                    columns(n % to.columns, m % from.columns);
    return weights;
}

Tensor3 PatchEmbeddings::operator()(const Tensor4& pixel_values) const {
    const Tensor3 patches = projection(patchify(pixel_values, patch_size));  // (B, N, C)
    const auto [B, N, C] = dims(patches);
    Tensor3 tokens(std::array{B, 1 + N, C});
    xt::view(tokens, xt::all(), 0) = cls_token;
    xt::view(tokens, xt::all(), xt::range(std::size_t{1}, 1 + N)) = patches;
    const Matrix weights = position_weights(grid, grid_of(pixel_values, patch_size));
    return tokens + reshape(matmul(weights, position_embeddings), {1, 1 + N, C});
}

void embeddings_backward(const PatchEmbeddings& embeddings, const Tensor4& pixel_values,
                         const Tensor3& output_gradient, PatchEmbeddings& gradient) {
    const std::size_t P = embeddings.patch_size;
    const Matrix sum = xt::sum(output_gradient, {0});  // (1 + N, C), of all pictures
    accumulate_product(gradient.position_embeddings,
                       position_weights(embeddings.grid, grid_of(pixel_values, P)), sum);
    gradient.cls_token += xt::view(sum, 0);
    const Tensor3 patches_gradient =  // (B, N, C)
        xt::view(output_gradient, xt::all(), xt::range(std::size_t{1}, sum.shape(0)));
    linear_backward(embeddings.projection, patchify(pixel_values, P), patches_gradient,
                    gradient.projection);
}

EncoderInputs encoder_inputs(const VitConfig& config, const Tensor4& pixel_values) {
    const auto [rows, columns] = grid_of(pixel_values, config.patch_size);
    const std::size_t B = pixel_values.shape(0), T = 1 + rows * columns;
    const std::size_t D = config.hidden_size / config.num_attention_heads;
    const RotaryTable no_rope = make_rotary_table(xt::zeros<Real>({D / 2}), T);
    return {{no_rope, position_ids(B, T), bidirectional_mask(xt::ones<Id>({B, T}))}, {}};
}

void add_parameters(ParameterList& list, const std::string& name, PatchEmbeddings& embeddings) {
    add_parameters(list, name + ".projection", embeddings.projection);
    add_tensor(list, name + ".cls_token", embeddings.cls_token);
    add_tensor(list, name + ".position_embeddings", embeddings.position_embeddings);
}

VitModel empty_vit(const VitConfig& config) {
    const auto& [height, width, P, channels, C, F, L, H, eps, act, qkv_bias] = config;
    require(P > 0 && height > 0 && width > 0 && height % P == 0 && width % P == 0 &&
                channels > 0 && F > 0 && L > 0 && H > 0 && C > 0 && C % (2 * H) == 0,
            "vit: a size is 0, patches of {0} x {0} pixels do not divide {1} x {2}, or {3} "
            "heads do not divide a hidden size of {4} into even parts",
            P, height, width, H, C);
    const Linear qkv_proj = zero_linear(C, C, qkv_bias), o_proj = zero_linear(C, C, true);
    const AttentionLayer attention{H, H, {qkv_proj, qkv_proj, qkv_proj, o_proj}};
    const Mlp mlp{zero_linear(C, F, true), zero_linear(F, C, true), act};
    const LayerNorm norm = make_layer_norm(C, eps);
    const Matrix positions = xt::zeros<Real>({1 + height / P * (width / P), C});
    const Linear projection = zero_linear(channels * P * P, C, true);
    return {config,
            {P, {height / P, width / P}, projection, xt::zeros<Real>({C}), positions},
            std::vector(L, VitBlock{{attention}, mlp, norm, norm}),
            {norm}};
}

template struct PreNormBlockWith<LayerNorm, Mlp, EncoderAttention>;
template struct Encoder<VitBlock, PatchEmbeddings>;
template ForwardPass<VitActivations> encoder_forward(const VitModel&, const Tensor4&);
template void encoder_backward(const VitModel&, const VitActivations&, const Tensor3&,
                               VitModel&);

}  // namespace llm
