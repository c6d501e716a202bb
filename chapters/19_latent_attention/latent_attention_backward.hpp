// Chapter 19, file 3 of 5: forward and backward passes of LatentAttention, and a model made of
// it.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/19_latent_attention/latent_attention.hpp"

namespace llm {

// What the backward pass needs. Training always expands: T = S, so it is cheaper.
struct LatentActivations {
    Tensor3 input;            // (B, T, C)
    Tensor3 q_compressed;     // (B, T, Rq): of q_a_proj, before the norm; empty without it
    Tensor3 q_normalized;     // (B, T, Rq); empty without it
    Tensor3 compressed;       // (B, T, R + Dr): of kv_a_proj_with_mqa
    Tensor3 latents;          // (B, T, R): normalized
    QueriesKeysValues heads;  // (B, H, T, Dn + Dr) twice, (B, H, T, Dv)
    Tensor4 attentions;       // (B, H, T, T)
    Tensor4 context;          // (B, H, T, Dv)
};

// The same output as attention(input, inputs). There is no dropout.
ForwardPass<LatentActivations> attention_forward(
    const LatentAttention& attention,
    const Tensor3& input,                  // (B, T, C)
    const PatternAttentionInputs& inputs,  // T positions
    Generator* dropout_generator = nullptr);
// Returns the gradient with respect to the input, (B, T, C).
Tensor3 attention_backward(const LatentAttention& attention,
                           const PatternAttentionInputs& inputs, const LatentActivations& saved,
                           const Tensor3& output_gradient,  // (B, T, C)
                           LatentAttention& gradient);

// Append the parameters, under the names of DeepSeek's files.
void add_parameters(ParameterList& list, const std::string& name, LatentAttention& attention);

// The model of chapter 09 with this attention. The head_dim of its configuration is that of the
// rotary table, Dr (as in Hugging Face's DeepseekV3Config).
using LatentBlock = PreNormBlockWith<RMSNorm, GatedMlp, LatentAttention>;
using LatentDecoder = DecoderModel<LatentBlock>;
// Initialized in the order of chapter 09's make_model. There is no QK norm. Throws ValueError
// if the sizes contradict each other, and for biases and attention dropout.
LatentDecoder make_latent_decoder(Config config, const LatentSizes& sizes,
                                  Generator& generator);

}  // namespace llm
