// Granite with windows in GGUF files.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// The theta of each layer; 0: no RoPE.
std::vector<double> layer_thetas(const FamilyConfig& config);

// llama.cpp's architecture granite_swa: what it has, and its settings.
void check_granite_swa_gguf(const FamilyConfig& config);
void add_granite_swa_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_granite_swa_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
