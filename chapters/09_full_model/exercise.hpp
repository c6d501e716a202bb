// Chapter 09, exercises. Write your answers into exercise.cpp; ./learn exercise 9 checks them.
#pragma once

#include <string>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "common/files/safetensors.hpp"

namespace exercise {

using namespace llm;

Vector predicted_logits();
Vector predicted_losses();
Vector predicted_parameter_counts();
Vector predicted_changes();

// The mean of -ln p of the actual next tokens of the first sequence.
double next_token_loss(const Tensor3& logits,       // (1, T, V)
                       const IdMatrix& input_ids);  // (1, T)

Tensor3 model_logits(const Model& model,
                     const IdMatrix& input_ids);  // (B, T) -> (B, T, V)

// The memory of a model's parameters and of the KV cache of one sequence of num_tokens tokens,
// in bytes.
std::uint64_t memory_bytes(const Config& config, std::size_t bytes_per_element,
                           std::size_t num_tokens);

// A model from an empty file. The members have the names of the checkpoint's tensors.
struct LayerWeights {
    Matrix q_proj;                    // (H*D, C)
    Matrix k_proj, v_proj;            // (Hkv*D, C)
    Matrix o_proj;                    // (C, H*D)
    Matrix gate_proj, up_proj;        // (F, C)
    Matrix down_proj;                 // (C, F)
    Vector input_layernorm;           // (C), before attention
    Vector post_attention_layernorm;  // (C), before the MLP
};
struct Weights {
    Matrix embed_tokens;               // (V, C), also the head
    std::vector<LayerWeights> layers;  // L
    Vector norm;                       // (C), the final norm
};
Weights load_weights(const SafeTensors& file, const Config& config);

// What attention and the MLP add to the residual stream.
Tensor3 attention_update(const LayerWeights& layer, const Config& config,
                         const Tensor3& hidden_states);  // (1, T, C)
Tensor3 mlp_update(const LayerWeights& layer, const Config& config,
                   const Tensor3& hidden_states);  // (1, T, C)

// The logits of the token after the last id: (V).
Vector next_token_logits(const Weights& weights, const Config& config,
                         const std::vector<Id>& ids);  // T

// The count tokens that greedy decoding appends to the prompt.
std::vector<Id> greedy_ids(const Weights& weights, const Config& config,
                           const std::vector<Id>& prompt, std::size_t count);

}  // namespace exercise
