// Chapter 15, file 5 of 10: the weights of the model in a layout for fast inference.
#pragma once

#include "chapters/09_full_model/model.hpp"
#include "chapters/15_fast/weight_memory.hpp"

namespace llm {

// A linear layer whose weight may be quantized. Fused projections with weights of different
// dtypes are several matrices, whose outputs follow one another.
struct FastLinear {
    std::vector<WeightMatrix> weights;  // together (out, in)
    std::vector<Real> bias;             // (out), or empty
};

// The weights of a block. Projections that read the same input are fused into one matrix.
struct FastLayer {
    RMSNorm attention_norm, ffn_norm;
    FastLinear qkv_proj;      // (H*D + 2*Hkv*D, C)
    FastLinear o_proj;        // (C, H*D)
    FastLinear gate_up_proj;  // (2F, C)
    FastLinear down_proj;     // (C, F)
    QKNorm qk_norm = NoQKNorm{};
};

// The model of chapter 09 with another layout of its weights. It computes the same logits.
struct FastModel {
    Config config;
    WeightMatrix embed_tokens;  // (V, C)
    std::vector<FastLayer> layers;
    RMSNorm norm;
    std::optional<WeightMatrix> lm_head;  // (V, C), or none: tied to embed_tokens

    WeightMatrix& head() { return lm_head ? *lm_head : embed_tokens; }
    const WeightMatrix& head() const { return lm_head ? *lm_head : embed_tokens; }

    // Bytes of the matrices that a decode step reads: those of all layers and the head. (Of an
    // untied embedding a decode step reads one row, which is not included.)
    std::uint64_t weight_bytes() const;
};

// Quantizes and fuses the weights, all in one dtype, or each matrix with the kernels that are
// chosen for its in_features. Throws ValueError if the model has norms with a
// bias or an MLP other than SwiGLU, and ValueError if shapes of weights do not match or
// weights are not finite.
FastModel make_fast_model(const Model& model, DType dtype);
using ChooseKernels = std::function<const WeightKernels&(std::size_t in_features)>;
FastModel make_fast_model(const Model& model, const ChooseKernels& kernels);
// Fuses linear layers. If one has a bias, the others get a bias of zeros.
FastLinear fuse_linears(std::initializer_list<const Linear*> linears,
                        const ChooseKernels& kernels, WeightMemory& memory);

}  // namespace llm
