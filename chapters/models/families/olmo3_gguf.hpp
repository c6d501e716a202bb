// OLMo 3 in GGUF files.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

RopeParameters without_scaling(RopeParameters rope);

// llama.cpp's architecture olmo2 with windows: what it has, and its settings.
void check_olmo3_gguf(const FamilyConfig& config);
void add_olmo3_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_olmo3_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
