// DeepSeek-V2 and V3 in GGUF files.
#pragma once

#include "chapters/models/family.hpp"

namespace llm::models {

// The layers before the first with a mixture of experts.
std::size_t num_dense_layers(const FamilyConfig& config);

// llama.cpp's architecture deepseek2, of both model types: what it has, and its settings.
void check_deepseek_gguf(const FamilyConfig& config);
void add_deepseek_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_deepseek_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
