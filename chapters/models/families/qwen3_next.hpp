// What Qwen3-Next and Qwen3.5 share: layers of Gated DeltaNet among those of attention with an
// output gate, and experts beside one for all tokens, which has a gate.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// The layers of attention: QK norm, gate, and a quarter of each head that is rotated.
void build_gated_attention(FamilyConfig& config);

// Which layers have Gated DeltaNet, by full_attention_interval or layer_types, and its sizes;
// the same to write. Throws FileError.
void read_linear_layers(const JsonFile& json, FamilyConfig& config);
void add_linear_layers(const FamilyConfig& config, JsonMembers& members);
// The sizes of the experts, with defaults: a mixture for all layers. Throws FileError. The same
// to write, but for the width of an expert.
MoeConfig read_gated_experts(const JsonFile& json, const ExpertSizes& defaults,
                             const Routing& routing, const FamilyConfig& config);
void add_gated_experts(const FamilyConfig& config, JsonMembers& members);

// llama.cpp's architectures: what they have, and their settings.
void check_linear_layers_gguf(const FamilyConfig& config);
void add_linear_layers_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_linear_layers_gguf(const GgufSettings& gguf, FamilyConfig& config);
void add_gated_experts_gguf(const FamilyConfig& config, GgufMetadata& metadata);
void read_gated_experts_gguf(const GgufSettings& gguf, FamilyConfig& config);

// All names but those of the projections of the DeltaNet's input, in which the two differ.
FamilyLayerNames gated_layer_names();
FamilyLayerNames gated_layer_gguf_names();

}  // namespace llm::models
