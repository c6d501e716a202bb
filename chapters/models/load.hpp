// The one place where a path becomes a model: a Hugging Face folder, a GGUF file or a file of
// llama2.c.
#pragma once

#include <variant>

#include "chapters/models/family_model.hpp"

namespace llm::models {

// The family of families/ whose layers the model in these files has; null if chapter 09's model
// has them: Llama, Qwen2, Qwen3, Mini-LLM, llama2.c, and Mistral if no window hides a token.
// Throws FileError, which lists all types, for others.
const Family* family_of(const std::string& path);

// Loads any of them. Throws FileError, which names the file and the tensor.
using LoadedModel = std::variant<Model, FamilyModel>;
LoadedModel load_any_model(const std::string& path);

// The configuration of any of them in a config.json. Throws FileError.
FamilyConfig read_any_config(const JsonFile& json);

// Whether the fast path of chapters 15 and 16 runs the model in these files: its layers are
// Llama's, whatever its family. Reads its settings, not its weights. Throws FileError.
bool has_fast_path(const std::string& path);
// The same model as one of chapter 09, for the fast path. Throws FileError, which names the
// type, if there is none.
Model load_for_fast_path(const std::string& path);

}  // namespace llm::models
