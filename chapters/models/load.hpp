// The one place where the path of any model becomes a model: a Hugging Face folder, a GGUF file
// or a file of llama2.c. (Programs of chapters 09 to 16, which run only chapter 09's model,
// call llama/load_model.hpp, as this does.)
#pragma once

#include <variant>

#include "chapters/models/encoders/encoder_model.hpp"
#include "chapters/models/family_model.hpp"

namespace llm::models {

// What a model is for: a decoder writes the next tokens of a text; an encoder (chapter 25)
// reads a whole text and gives vectors; a T5 (26) reads one text and may write another; a ViT
// (27) reads pictures. All other functions here are for decoders, and throw a FileError for
// other kinds, which says how to run them.
enum class ModelKind { decoder, encoder, encoder_decoder, vision };
ModelKind kind_of(const std::string& path);  // throws FileError

// The family in families/ that reads these files; null if models/llama reads them, as a model
// of chapter 09: Llama, Qwen2, Qwen3, Mini-LLM, llama2.c, and Mistral if no window hides a
// token. Throws FileError, which lists the supported types, if neither does.
const Family* family_of(const std::string& path);

// Loads a model of any supported type. Throws FileError, which names the file and the tensor.
using LoadedModel = std::variant<Model, FamilyModel>;
LoadedModel load_any_model(const std::string& path);

// Loads an encoder. Throws FileError, which names the file and the tensor.
AnyEncoder load_any_encoder(const std::string& path);

// Reads a config.json of any supported type. Throws FileError.
FamilyConfig read_any_config(const JsonFile& json);

// Whether the fast path of chapters 15 and 16 runs the model in these files: its layers are
// Llama's, whatever its family. Reads its settings, not its weights. Throws FileError.
bool has_fast_path(const std::string& path);
// Loads it as a model of chapter 09. Throws FileError, which names its model_type, unless it
// has a fast path.
Model load_for_fast_path(const std::string& path);

}  // namespace llm::models
