// Chapter 18: loading published weights of its model types, and exporting them.
#pragma once

#include "chapters/18_experts/mixture_model.hpp"

namespace llm {

// Loads a model from a folder with config.json and model.safetensors (or several files and an
// index). Throws FileError, which names the file and the tensor.
MixtureModel load_mixture_model(const std::string& folder);

// Writes config.json and model.safetensors in Hugging Face's format, in float32 or bfloat16.
// Throws FileError.
void export_model(const MixtureModel& model, const std::string& folder,
                  DType dtype = DType::float32);

}  // namespace llm
