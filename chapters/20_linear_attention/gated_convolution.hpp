// Chapter 20, file 7 of 8: a layer that sees a few tokens: a short convolution between two
// gates, with its backward pass.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/17_long_context/pattern_attention.hpp"

namespace llm {

// What a layer keeps of a sequence, whatever its length.
struct GatedConvolutionCache {
    Tensor3 conv_inputs = xt::zeros<Real>({0, 0, 0});  // (B, J - 1, C): the last ones
    std::size_t seq_len = 0;

    // As LinearCache, it cannot go back: to convolve an earlier token again takes older inputs.
    bool crop(std::size_t count) const { return count == seq_len; }
};

// The gated short convolution: out_proj(output_gate ⊙ conv(input_gate ⊙ value)), where all
// three are projections of the token, without an activation. Liquid AI calls the input gate B,
// the output gate C and the value x. Sources: "LFM2 Technical Report" (Liquid AI, 2025);
// Hugging Face, modeling_lfm2.py, Lfm2ShortConv; with long convolutions, "H3" (Fu et al., 2022)
// and "Hyena Hierarchy" (Poli et al., 2023).
struct GatedConvolution {
    Linear in_proj;                     // (3*C, C): input gates, output gates, values
    Matrix conv1d;                      // (C, J)
    std::optional<Vector> conv1d_bias;  // (C), or none
    Linear out_proj;                    // (C, C)

    using Inputs = PatternAttentionInputs;  // tables are not used: the weights of the
                                            // convolution tell the last tokens apart
    using Cache = GatedConvolutionCache;
    Cache make_cache() const { return {}; }

    // There are no attention weights: attentions is empty. Throws ValueError if the shapes do
    // not match, or if the position ids do not begin after the cached tokens.
    AttentionLayer::Output operator()(const Tensor3& hidden_states,          // (B, T, C)
                                      const PatternAttentionInputs& inputs,  // T positions
                                      GatedConvolutionCache* cache = nullptr) const;
};

struct GatedConvolutionSizes {
    std::size_t hidden_size = 0;      // C
    std::size_t conv_kernel_dim = 3;  // J; HF: conv_L_cache
    bool bias = false;                // of all three parts; HF: conv_bias
};
// Initializes with PyTorch's defaults, in Hugging Face's order: convolution, in_proj, out_proj.
// Throws ValueError if a size is 0.
GatedConvolution make_gated_convolution(const GatedConvolutionSizes& sizes,
                                        Generator& generator);

// The parts of the layer, in this order. The backward pass calls them, too.
struct GatesAndValues {
    Tensor3 input_gate, output_gate, value;  // (B, T, C)
};
// Throws ValueError, with both sizes, unless there are three features for each channel.
GatesAndValues split_gates(const Tensor3& projected);  // (B, T, 3*C)
// Each channel over the last J tokens, plus its bias.
Tensor3 convolve_channels(const GatedConvolution& layer,
                          const Tensor3& gated,    // (B, T, C): input_gate ⊙ value
                          const Tensor3& before);  // (B, J - 1, C) -> (B, T, C)

// What the backward pass needs.
struct GatedConvolutionActivations {
    Tensor3 input;         // (B, T, C)
    GatesAndValues parts;  // (B, T, C) each
    Tensor3 convolved;     // (B, T, C): before the output gate
};
// The same output as layer(input, inputs), which has no dropout.
ForwardPass<GatedConvolutionActivations> attention_forward(
    const GatedConvolution& layer,
    const Tensor3& input,  // (B, T, C)
    const PatternAttentionInputs& inputs, Generator* dropout_generator = nullptr);
// Returns the gradient with respect to the input, (B, T, C).
Tensor3 attention_backward(const GatedConvolution& layer, const PatternAttentionInputs& inputs,
                           const GatedConvolutionActivations& saved,
                           const Tensor3& output_gradient,  // (B, T, C)
                           GatedConvolution& gradient);
// Append the parameters.
void add_parameters(ParameterList& list, const std::string& name, GatedConvolution& layer);

// The pre-norm block of chapter 08 with this layer.
using GatedConvolutionBlock = PreNormBlockWith<RMSNorm, GatedMlp, GatedConvolution>;

}  // namespace llm
