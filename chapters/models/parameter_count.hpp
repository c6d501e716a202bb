// How many parameters a model has, and how many of them a token uses.
#pragma once

#include "chapters/models/family.hpp"

namespace llm::models {

// The parameters by part, of all layers.
struct ParametersByPart {
    std::uint64_t embedding = 0, positions = 0, attention = 0, router = 0, experts = 0,
                  dense_mlp = 0, norms = 0, head = 0;  // shared experts count as dense
    std::uint64_t router_biases = 0;   // which no gradient changes: not in the total
    std::uint64_t active_experts = 0;  // of the K experts of a token
    // Of the matrices by which a token is multiplied, with the head, tied or not.
    std::uint64_t active_matrix_elements = 0;
    bool tied = false;  // the head is the embedding

    std::uint64_t total() const;
    // The parameters by which a token is multiplied: all but those of other experts, and of
    // embedding and positions, which are look-ups (a tied embedding is the head). Source:
    // gpt-oss's model card (OpenAI, 2025), table 1. Each costs two FLOPs per token.
    std::uint64_t active() const;
};
ParametersByPart count_parameters(const FamilyConfig& config);  // allocates no tensor

}  // namespace llm::models
