// Reading and writing config.json of Llama and the model types that chapter 09's model covers.
#pragma once

#include <functional>

#include "chapters/09_full_model/model.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

// The model types that read_config reads: llama, mistral, qwen2, qwen3 and Mini-LLM's.
extern const std::vector<std::string> plain_model_types;

// Reads Hugging Face's config.json of one of these types, or Mini-LLM's. Throws FileError,
// which names the field, if one is missing or contradicts another, and UnsupportedValue if one
// requires something that chapter 09's model does not have.
Config read_config(const JsonFile& json);

// For the catch clause of a function that reads a config.json: a ValueError becomes a FileError
// with the name of the file, and an UnsupportedValue says what a reader can do about it, but
// for the model_type. Other errors stay as they are.
[[noreturn]] void rethrow_as_rejection(const JsonFile& json);

// The sizes of a class of Hugging Face's transformers (4.57) for keys that a file may leave
// out; 0: the class has no such default, or it follows from other sizes.
struct ClassDefaults {
    std::size_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0,
                num_attention_heads = 0, num_key_value_heads = 0, max_position_embeddings = 0,
                head_dim = 0;
    double rms_norm_eps = 1e-6, rope_theta = 10'000;
    bool tie_word_embeddings = false;
    std::size_t mlp_ratio = 0;  // intermediate_size / hidden_size
};

const ClassDefaults& class_defaults_of(const std::string& plain_model_type);

// The sizes of all model types, with the defaults of a class; those of a model's shape are
// noted on standard error. "key" gives a key's name in this class; empty: it has none. Throws
// FileError.
Config read_sizes(const JsonFile& json, const ClassDefaults& defaults,
                  const std::function<std::string(const std::string& common)>& key);

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
