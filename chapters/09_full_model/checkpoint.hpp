// Chapter 09, second part: real weights, under the names that others gave them.
#pragma once

#include <string>

#include "chapters/09_full_model/model.hpp"
#include "common/files/json_file.hpp"
#include "common/files/safetensors.hpp"

namespace llm {

// What a config.json says: of model_type llama, mistral, qwen2 or qwen3 as Hugging Face writes
// them, or Mini-LLM's. Throws FileError, with the field's name, if one is missing, contradicts
// another, or asks for what these chapters do not have.
ModelConfig read_config(const JsonFile& json);

// A model from a folder with config.json and model.safetensors (or several files and an index),
// or from a file of llama2.c. Weights that were trained with neighbours as pairs are reordered
// for split halves (chapter 04). Throws FileError, with file and tensor.
Model load_model(const std::string& path);

// Writes config.json and model.safetensors as Hugging Face has them, in 32 or in 16 bits.
// Throws FileError, or ShapeError if no model type has such biases and norms.
void export_model(const Model& model, const std::string& folder,
                  NumberType type = NumberType::f32);

}  // namespace llm
