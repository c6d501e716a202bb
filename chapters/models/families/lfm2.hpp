// LFM2 and LFM2-MoE: what their files share.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// The sizes of the convolutions; null if there are none.
const GatedConvolutionSizes* convolution_of(const FamilyConfig& config);

// A family with LFM2's names, and the keys that both types have.
Family make_lfm2_family();
void read_lfm2_layers(const JsonFile& json, FamilyConfig& config);
void write_lfm2_layers(const FamilyConfig& config, JsonMembers& json);

// GGUF files: see Family in family.hpp.
void check_lfm2_gguf(const FamilyConfig& config);
void add_lfm2_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_lfm2_gguf(const GgufSettings& gguf, FamilyConfig& config);
FamilyLayerNames lfm2_gguf_names();

}  // namespace llm::models
