// Chapter 09, exercises. Write your answers into exercise.cpp; ./learn exercise 9 checks them.
#pragma once

#include <map>
#include <string>

#include "chapters/09_full_model/model.hpp"
#include "chapters/09_full_model/parameters.hpp"

namespace exercise {

using namespace llm;

Matrix tied_logits(const Matrix& hidden_states,  // (N, C)
                   const Matrix& embed_tokens);  // (V, C) -> (N, V)

Tensor3 model_logits(const Model& model,
                     const IdMatrix& input_ids);  // (B, T) -> (B, T, V)

// Converts projections in Meta's format, for interleaved RoPE, to split halves.
Projections from_meta(const Projections& stored, const Config& config);

RMSNorm make_checkpoint_norm(const Config& config, const Vector& weight);  // (C)

// The memory of a model's parameters and of the KV cache of one sequence of num_tokens tokens,
// in bytes.
std::uint64_t memory_bytes(const Config& config, std::size_t bytes_per_element,
                           std::size_t num_tokens);

// The attention tensors of one layer of a Qwen2 checkpoint, by name: "q_proj.weight",
// "q_proj.bias", ...
struct StoredAttention {
    std::map<std::string, Matrix> weights;
    std::map<std::string, Vector> biases;
};
Projections qwen2_projections(const StoredAttention& stored);

// The logits of the last position of each sequence.
Matrix last_logits(const Model& model,
                   const Tensor3& hidden_states);  // (B, T, C), before the norm -> (B, V)

}  // namespace exercise
