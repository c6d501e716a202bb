// Qwen3.5 in GGUF files.
#pragma once

#include "chapters/models/families/qwen3_next.hpp"

namespace llm::models {

// The functions and names of the two families: see Family in family.hpp.
void add_qwen3_5_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void add_qwen3_5_moe_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_qwen3_5_gguf(const GgufSettings& gguf, FamilyConfig& config);
void read_qwen3_5_moe_gguf(const GgufSettings& gguf, FamilyConfig& config);
FamilyLayerNames qwen3_5_gguf_names();

}  // namespace llm::models
