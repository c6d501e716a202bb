// Keys of config.json that DeepSeek-V3 shares with its relatives.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// What a class of transformers has for keys that a file leaves out.
struct DeepseekDefaults {
    LatentSizes latent;  // the ranks, Dn and Dv
    ExpertSizes experts;
    Real routed_scaling_factor = 1;
    ExpertGroups groups = {};
};

// The layers that have a mixture of experts: those after the first dense ones. Throws
// FileError.
std::vector<bool> read_first_dense_layers(const JsonFile& json, std::size_t dense_layers,
                                          const FamilyConfig& config);

// Latent attention in all layers, and sigmoid routing in those that have a mixture of experts.
// Throws FileError.
void read_deepseek_v3(const JsonFile& json, const DeepseekDefaults& defaults,
                      const std::vector<bool>& has_experts, FamilyConfig& config);

}  // namespace llm::models
