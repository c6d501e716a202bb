// DeepSeek-V2 and V3 in GGUF files.
#pragma once

#include "chapters/models/families/deepseek.hpp"

namespace llm::models {

// llama.cpp's architecture deepseek2, of both model types: what it has, and its settings.
void check_deepseek_gguf(const FamilyConfig& config);
void add_deepseek_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_deepseek_gguf(const GgufSettings& gguf, FamilyConfig& config);
// Of them, what belongs to the mixtures of experts.
void check_deepseek_experts_gguf(const FamilyConfig& config);
void add_deepseek_experts_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_deepseek_experts_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
