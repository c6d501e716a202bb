// The forward pass of the walk, with all tensors that its steps show.
#pragma once

#include <string>
#include <vector>

#include "chapters/apps/walk/walk.hpp"

namespace llm::walk {

// Computed by the functions of the lessons, layer by layer.
struct Pass {
    std::vector<std::string> words;             // T
    IdMatrix ids;                               // (1, T)
    Tensor3 embeddings;                         // (1, T, C)
    std::vector<Tensor3> streams;               // before each layer, then after the last
    std::vector<Tensor3> between;               // after the attention of each layer
    Tensor3 attention_input, attention_output;  // (1, T, C): of the layer that is shown
    QueriesKeysValues projected, rotated;
    AttentionInputs inputs;
    HeadAttentionOutput head;  // of the head that is shown
};

// Throws ValueError unless the text has 2 to 8 tokens.
Pass run(const Walk& walk);

}  // namespace llm::walk
