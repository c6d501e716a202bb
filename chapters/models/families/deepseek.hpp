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

// Latent attention of the first layer.
const LatentConfig& latent_of(const FamilyConfig& config);

// Latent attention in all layers, with the RoPE that has been read of qk_rope_head_dim
// features; YaRN's factors are DeepSeek's. The same to write. Throws FileError.
void read_latent(const JsonFile& json, const LatentSizes& defaults, FamilyConfig& config);
void write_latent(const FamilyConfig& config, JsonMembers& json);

// The layers that have a mixture of experts: those after the first dense ones. Throws
// FileError.
std::vector<bool> read_first_dense_layers(const JsonFile& json, std::size_t dense_layers,
                                          const FamilyConfig& config);
// Mixtures of experts in these layers, with DeepSeek-V2's routing and with DeepSeek-V3's. The
// same to write. Throws FileError.
void read_softmax_experts(const JsonFile& json, const std::vector<bool>& has_experts,
                          FamilyConfig& config);
void read_sigmoid_experts(const JsonFile& json, const DeepseekDefaults& defaults,
                          const std::vector<bool>& has_experts, FamilyConfig& config);
void write_routed_experts(const FamilyConfig& config, JsonMembers& json);

// Latent attention in all layers, and sigmoid routing in those that have a mixture of experts.
// Throws FileError.
void read_deepseek_v3(const JsonFile& json, const DeepseekDefaults& defaults,
                      const std::vector<bool>& has_experts, FamilyConfig& config);

}  // namespace llm::models
