// Loading published weights of the families of families/, and exporting them.
#pragma once

#include "chapters/models/family_model.hpp"

namespace llm::models {

// Loads a model from a folder with config.json and model.safetensors (or several files and an
// index). Throws FileError, which names the file and the tensor, also if the weights have a
// tensor that the model does not.
FamilyModel load_family_model(const std::string& folder);
// The same for a model of this family, whatever its model_type.
FamilyModel load_family_model(const std::string& folder, const Family& family);

// Writes config.json and model.safetensors in Hugging Face's format, in float32 or bfloat16.
// Throws FileError.
void export_model(const FamilyModel& model, const std::string& folder,
                  DType dtype = DType::float32);

}  // namespace llm::models
