// Chapter 22, file 4 of 5: a module for multi-token prediction, and its gradients.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"

namespace llm {

// A module for multi-token prediction (MTP), which belongs to a target model. At position t it
// reads two vectors: the target's hidden state h_t after the final norm, which depends on the
// tokens up to x_t, and the embedding of the next token, x_{t+1}. It predicts x_{t+2}:
//
//     fc [norm_e(embed(x_{t+1})); norm_h(h_t)] -> decoder layer -> norm -> the target's head
//
// Embedding and head are those of the target, and frozen, as all of its weights are.
//
// Sources: "DeepSeek-V3 Technical Report" (2024), section 2.2, equations 21 to 23, which writes
// the hidden state first; published weights have the embedding first: vLLM, deepseek_mtp.py and
// qwen3_next_mtp.py, whose names these are. They, too, read h_t after the final norm.
struct MtpModule {
    RMSNorm pre_fc_norm_embedding, pre_fc_norm_hidden;  // (C); DeepSeek: enorm, hnorm
    Linear fc;                                          // (C, 2C); DeepSeek: eh_proj
    PreNormBlock layer;
    RMSNorm norm;  // (C); DeepSeek: shared_head.norm
};

// A module for a target with this configuration: matrices from a normal distribution with
// standard deviation 0.02, norm weights of 1.
MtpModule make_mtp_module(const Config& target, Generator& generator);

// Its parameters, under the names of Qwen3-Next's checkpoints: "mtp.fc.weight".
std::vector<Parameter> named_parameters(MtpModule& module);

// What the backward pass needs from the forward pass.
struct MtpActivations {
    Tensor3 embeddings, hidden_states;  // (B, T, C): the inputs
    Tensor3 joined;                     // (B, T, 2C): the input of fc
    AttentionInputs attention_inputs;   // of T positions
    BlockActivations layer;
    Tensor3 last_hidden_state;  // (B, T, C): after the layer
};

// The output is the hidden state after the module's norm, (B, T, C): the input of the head. The
// backward pass accumulates the gradients of the module; those of its inputs are not needed.
ForwardPass<MtpActivations> mtp_forward(const MtpModule& module,
                                        const Tensor3& embeddings,     // (B, T, C)
                                        const Tensor3& hidden_states,  // (B, T, C)
                                        const AttentionInputs& attention_inputs);
void mtp_backward(const MtpModule& module, const MtpActivations& saved,
                  const Tensor3& output_gradient,  // (B, T, C)
                  MtpModule& gradient);

// What the module reads and predicts in a batch: position t has h_t, the embedding of x_{t+1},
// and x_{t+2}. The last position of each sequence has no x_{t+2}, and is left out.
struct MtpBatch {
    Tensor3 hidden_states, embeddings;  // (B, T - 1, C)
    IdMatrix targets;                   // (B, T - 1)
    AttentionInputs attention_inputs;   // of T - 1 positions
};
// The target computes the hidden states. Throws ValueError if a sequence has only one token.
MtpBatch make_mtp_batch(const Model& target,
                        const IdMatrix& input_ids,  // (B, T): x_t
                        const IdMatrix& next_ids);  // (B, T): x_{t+1}

// The logits of x_{t+2} at each position: (B, T - 1, V).
Tensor3 mtp_logits(const MtpModule& module, const Model& target, const MtpBatch& batch);

// The loss of a batch; the gradients are accumulated.
double forward_backward(const MtpModule& module, const Model& target, const MtpBatch& batch,
                        MtpModule& gradient);

}  // namespace llm
