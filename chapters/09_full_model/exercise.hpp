// Chapter 09, exercises. Write your answers into exercise.cpp; ./learn exercise 9 checks them.
#pragma once

#include <map>
#include <string>

#include "chapters/09_full_model/model.hpp"

namespace exercise {

using namespace llm;

Matrix tied_logits(const Matrix& rows, const Matrix& embed_tokens);  // (N, C), (V, C) -> (N, V)
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids);  // (B, T) -> (B, T, V)

// The projections of a layer as Meta stores them (interleaved pairs), for split halves.
Projections from_meta(const Projections& stored, const ModelConfig& config);

RMSNorm norm_of(const ModelConfig& config, const Vector& weight);  // (C)

// What the weights and the cache of one sequence of so many tokens take.
std::size_t memory_bytes(const ModelConfig& config, std::size_t bytes_per_number,
                         std::size_t num_tokens);

// What a checkpoint of Qwen2 holds of a layer's attention: "q_proj.weight", "q_proj.bias", ...
struct StoredAttention {
    std::map<std::string, Matrix> weights;
    std::map<std::string, Vector> biases;
};
Projections qwen2_projections(const StoredAttention& stored);

// The logits of the last position alone. (B, T, C), before the final norm, -> (B, V)
Matrix last_logits(const Model& model, const Tensor3& stream);

}  // namespace exercise
