// Reading and writing config.json of Llama and the model types that chapter 09's model covers.
#pragma once

#include <set>

#include "chapters/09_full_model/model.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

// The model types that read_config reads: llama, mistral, qwen2, qwen3 and Mini-LLM's.
extern const std::vector<std::string> plain_model_types;

// Reads Hugging Face's config.json of one of these types, or Mini-LLM's.
// Throws FileError, which names the field, if one is missing, contradicts another, or requires
// an unsupported feature.
Config read_config(const JsonFile& json);

// The keys of config.json that change no logit: only training, generation, tokenizers or other
// libraries read them. Any other key that nothing reads is rejected.
extern const std::set<std::string> unused_config_keys;

// The key of the object with the settings of RoPE: rope_scaling, or, since transformers 5,
// rope_parameters; rope_parameters.full_attention in files that have one object for each type
// of layers, if these may differ. Throws FileError.
std::string rope_object(const JsonFile& json, bool may_differ_by_layer_type);
// The theta at the top level or in that object. Throws FileError if they differ, or if
// rope_parameters has none.
Real read_rope_theta(const JsonFile& json, const std::string& inside, double otherwise);

// The type of RoPE scaling in rope_scaling or rope_parameters: its rope_type, or type, as files
// of earlier versions say. Throws FileError if both are there and differ, or none; only
// rope_parameters without a factor may leave it out, for "default".
std::string read_rope_type(const JsonFile& json, const std::string& inside);

// Whether this is Mini-LLM's config.json, which has Meta's field names and the model_type
// mini-llm or none. The q_proj and k_proj of such a checkpoint use interleaved RoPE.
bool is_mini_llm_config(const JsonFile& json);

// The members of config.json for a configuration. Throws ValueError if no supported model_type
// has its biases, norms and RoPE scaling.
JsonMembers config_json(const Config& config, DType dtype);

// Those that all model types have: the type, sizes, theta, the data type.
JsonMembers common_members(const std::string& model_type, const std::string& architecture,
                           const Config& config, DType dtype);

}  // namespace llm::models
