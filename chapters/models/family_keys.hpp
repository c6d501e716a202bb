// What families share: reading keys of config.json and of GGUF files into the settings of
// layers, and writing them.
#pragma once

#include "chapters/models/families/families.hpp"

namespace llm::models {

FamilyLayerNames hugging_face_layer_names();
FamilyLayerNames gguf_layer_names();

// An activation by its names in Hugging Face (ACT2FN). Throws FileError if it is not one of
// them.
Activation read_activation(const JsonFile& json, const std::string& key,
                           const Activation& otherwise);
// mlp_bias, of families that have this key, and the same to write if it is not the default.
void read_mlp_bias(const JsonFile& json, FamilyConfig& config);
void add_mlp_bias(const FamilyConfig& config, JsonMembers& members);

// Which layers are of this kind, from a key that has its name or the other's for each layer.
// Throws FileError.
std::vector<bool> read_layer_kinds(const JsonFile& json, const std::string& key,
                                   const std::string& kind, const std::string& other,
                                   std::size_t num_layers);

// Patterns of the layers with attention. The pattern of each layer from layer_types, which has
// sliding_attention or full_attention for each; throws FileError.
std::vector<AttentionPattern> read_layer_types(const JsonFile& json,
                                               const SlidingWindow& window,
                                               std::size_t num_hidden_layers);
// The pattern of each layer of Mistral and Gemma: layer_types if it is there, else every
// full_every-th layer has full attention (0: none).
void read_patterns(const JsonFile& json, std::size_t full_every, FamilyConfig& config);
void set_patterns(FamilyConfig& config, const std::vector<AttentionPattern>& patterns);
std::vector<std::string> layer_types(const FamilyConfig& config);
// Appends layer_types and sliding_window if a layer has a window.
void add_windows(const FamilyConfig& config, JsonMembers& members);

// RoPE. 1 in no_rope_layers means that the layer does use RoPE. If the list is empty or
// missing, every no_rope_layer_interval-th layer has none (4). Throws FileError.
void read_use_rope(const JsonFile& json, FamilyConfig& config);
std::vector<std::size_t> no_rope_layers(const FamilyConfig& config);
// The parameters in this object of config.json, or what is there already: theta, the share of
// a head that is rotated, and the scaling (default, linear, dynamic, llama3, yarn, longrope).
// Throws FileError.
RopeParameters read_rope(const JsonFile& json, const std::string& inside,
                         const FamilyConfig& config, const RopeParameters& otherwise);
// The same for each layer, if rope_parameters has an object for each type of layers,
// full_attention and sliding_attention.
void read_rope_by_layer_type(const JsonFile& json, FamilyConfig& config);
YarnScaling read_yarn(const JsonFile& json, const std::string& inside, double default_factor);
void add_rope_scaling(const RopeParameters& rope, JsonMembers& members);
// Sets the scaling of all layers with RoPE, and how many features they rotate.
template <class Scaling>
void set_rope_scaling(FamilyConfig& config, const Scaling& scaling) {
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer)) rope->scaling = scaling;
}
void set_rotary_dim(FamilyConfig& config, std::size_t rotary_dim);
// LongRoPE of the layers; null if they have another scaling.
const LongRopeScaling* longrope_of(const FamilyConfig& config);

// Mixtures of experts: the sizes, with the keys of the number of experts and of their width,
// and defaults. Throws FileError.
ExpertSizes read_experts(const JsonFile& json, const std::string& num_experts_key,
                         const ExpertSizes& defaults);
// A mixture with the activation and the biases of the dense MLP of layer 0; the same in each
// layer with a number n for which holds(n).
MoeConfig make_experts(const FamilyConfig& config, const ExpertSizes& sizes,
                       const Routing& routing);
template <class Holds>
void set_experts(FamilyConfig& config, const MoeConfig& moe, const Holds& holds) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (holds(n)) config.layers[n].mlp = moe;
}
// How many layers stand before the first that has one.
std::size_t num_dense_layers(const FamilyConfig& config);
// Which layers have one: decoder_sparse_step divides their number, counted from 1, and
// mlp_only_layers does not list them. Throws FileError. The same to write.
void read_moe_layers(const JsonFile& json, const MoeConfig& moe, FamilyConfig& config);
void add_moe_layers(const FamilyConfig& config, JsonMembers& members);

// GGUF. Windows of this key in all layers but every full_every-th.
void read_gguf_windows(const GgufSettings& gguf, std::size_t full_every, FamilyConfig& config);
void add_gguf_window(const FamilyConfig& config, GgufMetadata& metadata);
// A flag for each layer, under this key. Throws FileError if there are more or fewer.
std::vector<bool> read_gguf_flags(const GgufSettings& gguf, const std::string& key,
                                  std::size_t num_layers);
// The sizes of the experts, and the same to write; width: the key of that of one expert.
ExpertSizes read_gguf_experts(const GgufSettings& gguf, const std::string& width);
void add_gguf_experts(const FamilyConfig& config, GgufMetadata& metadata);
// YaRN's factor and original context; none if the type is another one.
std::optional<YarnScaling> read_gguf_yarn(const GgufSettings& gguf);
void add_gguf_yarn(const FamilyConfig& config, GgufMetadata& metadata);
// A size under a key of the family's architecture.
void add_gguf_size(const FamilyConfig& config, const std::string& key, std::size_t size,
                   GgufMetadata& metadata);
void add_gguf_number(const FamilyConfig& config, const std::string& key, double number,
                     GgufMetadata& metadata);

// For check_gguf. Throw ValueError: llama.cpp's llama and phi3 have no window, if one hides a
// token; its olmo2 and phi3 have as many features in all query heads as in a hidden state; a
// layer has a dense MLP; the head is not tied, or is.
void reject_windows_of_llama(const FamilyConfig& config);
void reject_other_query_widths(const FamilyConfig& config);
void reject_dense_layers(const FamilyConfig& config);
void require_tied_head(const FamilyConfig& config, bool tied);

}  // namespace llm::models
