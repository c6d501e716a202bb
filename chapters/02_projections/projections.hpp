// Chapter 02, file 2 of 2 — Where do queries, keys and values come from?
#pragma once

#include "chapters/01_masking/config.hpp"
#include "chapters/02_projections/linear.hpp"

namespace llm {

// The four linear layers of an attention layer.
struct Projections {
    Linear q_proj;  // (H*D, C): hidden states to queries
    Linear k_proj;  // (Hkv*D, C): hidden states to keys
    Linear v_proj;  // (Hkv*D, C): hidden states to values
    Linear o_proj;  // (C, H*D): concatenated heads back to the hidden size
};

// Initializes them in the order q, k, v, o, each with PyTorch's defaults.
Projections make_projections(const Config& config, Generator& generator);

}  // namespace llm
