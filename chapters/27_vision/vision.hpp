// Chapter 27, file 1 of 1 — How does a transformer see? Patches as tokens, and positions for
// pictures of other sizes.
#pragma once

#include "chapters/25_encoders/encoder.hpp"

namespace llm {

// (pixel / 255 - mean) / std for each channel. Throws ValueError unless there are as many of
// both as channels. Source: Hugging Face, ViTImageProcessor.
Tensor4 normalize_pixels(const Tensor4& pixels,     // (B, channels, height, width)
                         const Vector& image_mean,  // (channels)
                         const Vector& image_std);  // (channels)

// Cuts pictures into N square patches, row by row. A patch is flattened as the weight of a
// Conv2d: by channel, row and column. Throws ValueError unless P divides both sides. Source:
// torch.nn.functional.unfold.
Tensor3 patchify(const Tensor4& pixel_values,  // (B, channels, height, width)
                 std::size_t patch_size);      // P -> (B, N, channels * P * P)

// The rows and columns of patches, and those of a picture.
struct PatchGrid {
    std::size_t rows = 0, columns = 0;
};
PatchGrid grid_of(const Tensor4& pixel_values,  // (B, channels, height, width)
                  std::size_t patch_size);      // P, which divides both sides

// Positions of one grid as weighted sums of those of another: bicubic interpolation, the class
// token's (row and column 0) apart. N is the number of patches of `from`, N' that of `to`.
// Source: Hugging Face, interpolate_pos_encoding.
Matrix position_weights(const PatchGrid& from, const PatchGrid& to);  // (1 + N', 1 + N)

// The sizes of a ViT, under the names of Hugging Face's config.json.
struct VitConfig {
    std::size_t image_height = 0, image_width = 0;       // HF: image_size
    std::size_t patch_size = 0;                          // P, divides both
    std::size_t num_channels = 3;                        // colors
    std::size_t hidden_size = 0, intermediate_size = 0;  // C, F
    std::size_t num_hidden_layers = 0;                   // L
    std::size_t num_attention_heads = 0;                 // H, divides C
    Real layer_norm_eps = Real(1e-12);
    Activation hidden_act = GELU;
    bool qkv_bias = true;
};

// A class token, then one for each patch, plus positions, which are interpolated for pictures
// of another size. The projection equals a Conv2d with kernel and stride P.
struct PatchEmbeddings {
    using Config = VitConfig;
    using Input = Tensor4;  // pixel_values: (B, channels, height, width)

    std::size_t patch_size = 0;  // P
    PatchGrid grid;              // of the positions
    Linear projection;           // (C, channels * P * P)
    Vector cls_token;            // (C)
    Matrix position_embeddings;  // (1 + N, C), that of the class token first

    Tensor3 operator()(const Tensor4& pixel_values) const;  // -> (B, 1 + N, C)
};
// Accumulates the gradients of projection, class token and positions.
void embeddings_backward(const PatchEmbeddings& embeddings, const Tensor4& pixel_values,
                         const Tensor3& output_gradient,  // (B, 1 + N, C)
                         PatchEmbeddings& gradient);
// Each of the 1 + N tokens sees all of its picture; angles of 0 leave out RoPE.
EncoderInputs encoder_inputs(const VitConfig& config, const Tensor4& pixel_values);
void add_parameters(ParameterList& list, const std::string& name, PatchEmbeddings& embeddings);

// Source: "An Image is Worth 16x16 Words" (Dosovitskiy et al., 2020).
using VitBlock = PreNormBlockWith<LayerNorm, Mlp, EncoderAttention>;
using VitModel = Encoder<VitBlock, PatchEmbeddings>;
// All weights 0 and norms 1. Throws ValueError for a size that is 0 or does not divide.
VitModel empty_vit(const VitConfig& config);

using VitActivations = EncoderActivations<VitBlock, Tensor4>;
extern template struct PreNormBlockWith<LayerNorm, Mlp, EncoderAttention>;
extern template struct Encoder<VitBlock, PatchEmbeddings>;
extern template ForwardPass<VitActivations> encoder_forward(const VitModel&, const Tensor4&);
extern template void encoder_backward(const VitModel&, const VitActivations&, const Tensor3&,
                                      VitModel&);

}  // namespace llm
