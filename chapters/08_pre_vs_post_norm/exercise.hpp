// Chapter 08, exercises. Write your answers into exercise.cpp; ./learn exercise 8 checks them.
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"

namespace exercise {

using namespace llm;

// All of them map hidden states of (B, T, C) to (B, T, C).
Tensor3 with_a_skip(const PreNormBlock& block, const Tensor3& hidden_states,
                    const Placement& placement);
Tensor3 with_two_norms(const PreNormBlock& block, const Tensor3& hidden_states,
                       const Placement& placement);
Tensor3 with_two_residuals(const PreNormBlock& block, const Tensor3& hidden_states,
                           const Placement& placement);

// All layers of a pre-norm model, up to what the output layer reads.
struct Decoder {
    std::vector<PreNormBlock> layers;
    RMSNorm final_norm;
};
Tensor3 through_the_model(const Decoder& decoder, const Tensor3& hidden_states,
                          const Placement& placement);

Tensor3 neox_block(const Sublayers& sublayers, const RMSNorm& attention_norm,
                   const RMSNorm& mlp_norm, const Tensor3& hidden_states,
                   const Placement& placement);

// The weights of a layer of Gemma 2 under the names of its checkpoint, (C) each. They hold w of
// a weight 1 + w.
struct GemmaWeights {
    Vector input_layernorm, post_attention_layernorm;
    Vector pre_feedforward_layernorm, post_feedforward_layernorm;
};
SandwichBlock gemma_block(const Sublayers& sublayers, const GemmaWeights& weights, Real eps);

Tensor3 deep_norm(const PostNormBlock& block, Real alpha, const Tensor3& hidden_states,
                  const Placement& placement);

}  // namespace exercise
