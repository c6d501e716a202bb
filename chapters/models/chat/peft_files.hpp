// Adapters in the files of Hugging Face's PEFT.
#pragma once

#include <string>

#include "chapters/14_fine_tuning/lora.hpp"

namespace llm::models {

// Writes adapter_model.safetensors and then adapter_config.json to a folder, which is created.
// Throws FileError, also if the folder already has one of them, unless they are to be replaced.
// Source: PEFT's documentation, "PEFT checkpoint format".
enum class Existing { reject, replace };
void save_adapter(const LoraAdapter& adapter, const std::string& folder,
                  Existing existing = Existing::reject);

// Reads such a folder for a model. Throws FileError, which names the file and the key, if a
// tensor is missing or has another shape, or if the adapter is of a kind that is not
// implemented: another peft_type than LORA, use_dora, modules_to_save, biases, patterns of
// ranks, layers_to_transform.
LoraAdapter load_adapter(const std::string& folder, const Model& model);

}  // namespace llm::models
