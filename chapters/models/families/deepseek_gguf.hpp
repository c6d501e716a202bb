// DeepSeek-V2 and V3 in GGUF files.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// Latent attention of the first layer, and the layers before the first with a mixture of
// experts.
const LatentConfig& latent_of(const FamilyConfig& config);
std::size_t num_dense_layers(const FamilyConfig& config);

// llama.cpp's architecture deepseek2, of both model types: what it has, and its settings.
void check_deepseek_gguf(const FamilyConfig& config);
void add_deepseek_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_deepseek_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
