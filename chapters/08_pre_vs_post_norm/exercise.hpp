// Chapter 08, exercises. Write your answers into exercise.cpp; ./learn exercise 8 checks them.
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"

namespace exercise {

using namespace llm;

Matrix predicted_stream();      // (2, 2)
Vector predicted_depth();       // (2)
Vector predicted_output_rms();  // (5)

// The functions below map the residual stream, (B, T, C), to (B, T, C).
Tensor3 translated_block(const PreNormBlock& block, const Tensor3& hidden_states,
                         const AttentionInputs& inputs);

// The layers of a pre-norm model, and the norm between the last layer and the output layer.
struct Decoder {
    std::vector<PreNormBlock> layers;
    RMSNorm final_norm;
};
Tensor3 decoder_forward(const Decoder& decoder, const Tensor3& hidden_states,
                        const AttentionInputs& inputs);

Tensor3 neox_block(const AttentionLayer& self_attn, const GatedMlp& mlp,
                   const RMSNorm& attention_norm, const RMSNorm& mlp_norm,
                   const Tensor3& hidden_states, const AttentionInputs& inputs);

// The norm weights of a layer of Gemma 2 under the names of its checkpoint, (C) each. They are
// stored as w, and the norm multiplies by 1 + w.
struct GemmaWeights {
    Vector input_layernorm, post_attention_layernorm;
    Vector pre_feedforward_layernorm, post_feedforward_layernorm;
};
SandwichBlock gemma_block(const AttentionLayer& self_attn, const GatedMlp& mlp,
                          const GemmaWeights& weights, Real eps);

Tensor3 deep_norm_block(const PostNormBlock& block, Real alpha, const Tensor3& hidden_states,
                        const AttentionInputs& inputs);

}  // namespace exercise
