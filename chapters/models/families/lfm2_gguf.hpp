// LFM2 and LFM2-MoE in GGUF files.
#pragma once

#include "chapters/models/families/deepseek_gguf.hpp"

namespace llm::models {

// The sizes of the convolutions; null if there are none.
const GatedConvolutionSizes* convolution_of(const FamilyConfig& config);

void check_lfm2_gguf(const FamilyConfig& config);
void add_lfm2_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_lfm2_gguf(const GgufSettings& gguf, FamilyConfig& config);
FamilyLayerNames lfm2_gguf_names();

}  // namespace llm::models
