// Chapter 09, file 5 of 9: reading and writing config.json.
#pragma once

#include "chapters/09_full_model/model.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// Reads Hugging Face's config.json of model_type llama, mistral, qwen2 or qwen3, or Mini-LLM's.
// Throws FileError, which names the field, if one is missing, contradicts another, or requires
// an unsupported feature.
Config read_config(const JsonFile& json);

// Whether this is Mini-LLM's config.json, which has Meta's field names and the model_type
// mini-llm or none. The q_proj and k_proj of such a checkpoint use interleaved RoPE.
bool is_mini_llm_config(const JsonFile& json);

// The members of config.json for a configuration. Throws ValueError if no supported model_type
// has its biases, norms and RoPE scaling.
JsonMembers config_json(const Config& config, DType dtype);

// Those that all model types have: the type, sizes, theta, the data type.
JsonMembers common_members(const std::string& model_type, const std::string& architecture,
                           const Config& config, DType dtype);

}  // namespace llm
