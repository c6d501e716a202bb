// Reading the settings of RoPE in a config.json.
#pragma once

#include "chapters/01_masking/config.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// The key of the object with the settings of RoPE: rope_scaling, or, since transformers 5,
// rope_parameters; rope_parameters.full_attention in files that have one object for each type
// of layers, if these may differ. Throws FileError.
std::string rope_object(const JsonFile& json, bool may_differ_by_layer_type);
// The theta at the top level or in that object, or another value if both lack it. Throws
// FileError if they differ, or if both lack it although there is a rope_parameters.
Real read_rope_theta(const JsonFile& json, const std::string& inside, double otherwise);

// The type of RoPE scaling in rope_scaling or rope_parameters: its rope_type, or type, as files
// of earlier versions say; "default" without the object, or if it is empty. Throws FileError if
// both are there and differ, or none; only rope_parameters without a factor may leave it out.
// mrope, for texts with pictures, is "default" for a text.
std::string read_rope_type(const JsonFile& json, const std::string& inside);

// Reads the rope_scaling of the types default, linear, dynamic and llama3; false if it has
// another one. head_dim must be known. Throws FileError.
bool read_simple_scaling(const JsonFile& json, const std::string& inside, Config& config);
void add_llama3_scaling(const Llama3Scaling& scaling, JsonMembers& members);  // to write

}  // namespace llm::models
