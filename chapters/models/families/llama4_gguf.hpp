// Llama 4 in GGUF files, and what its layers may have.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// The temperature of the layers without RoPE, and the chunks and the QK norm of the others.
struct Llama4Kinds {
    std::optional<TemperatureTuning> tuning = std::nullopt;
    std::size_t chunk_size = 8192;
    bool qk_norm = false;
};
Llama4Kinds kinds_of(const FamilyConfig& config);
// Layers with RoPE have chunks and the QK norm, the others see everything with the temperature.
void set_kinds(FamilyConfig& config, const Llama4Kinds& kinds);

// The functions of the family: see Family in family.hpp.
void check_llama4_gguf(const FamilyConfig& config);
void add_llama4_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_llama4_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
