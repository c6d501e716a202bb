// Chapter 17: loading published weights of its model types, and exporting them.
#pragma once

#include "chapters/17_long_context/long_context_model.hpp"

namespace llm {

// Loads a model from a folder with config.json and model.safetensors (or several files and an
// index). Gemma's norms are stored as w and multiply by 1 + w. Throws FileError, which names
// the file and the tensor, also if the weights have a tensor that the model type does not know.
LongContextModel load_long_context_model(const std::string& folder);

// Writes config.json and model.safetensors in Hugging Face's format, in float32 or bfloat16.
// Throws FileError.
void export_model(const LongContextModel& model, const std::string& folder,
                  DType dtype = DType::float32);

}  // namespace llm
