// Ministral 3 in GGUF files.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// A temperature of the queries from position 0 on: 1 + beta ln(1 + floor(position / length)).
// If beta is 0, there is none.
void set_temperature(FamilyConfig& config, Real length, double beta);

// llama.cpp's architecture mistral3: what it has, and its settings.
void check_ministral3_gguf(const FamilyConfig& config);
void add_ministral3_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_ministral3_gguf(const GgufSettings& gguf, FamilyConfig& config);

}  // namespace llm::models
