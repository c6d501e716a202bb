// Qwen3-Next in GGUF files.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// The functions and names of the family: see Family in family.hpp.
void check_qwen3_next_gguf(const FamilyConfig& config);
void add_qwen3_next_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_qwen3_next_gguf(const GgufSettings& gguf, FamilyConfig& config);
FamilyLayerNames qwen3_next_gguf_names();

}  // namespace llm::models
