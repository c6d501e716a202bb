// Models of chapter 09 in files: loading published weights, and exporting.
#pragma once

#include <string>

#include "chapters/09_full_model/checkpoint.hpp"
#include "common/files/json_file.hpp"
#include "common/files/safetensors.hpp"

namespace llm::models {

// Loads a model from a folder with config.json and model.safetensors (or several files and an
// index), from a GGUF file, whose weights are dequantized, or from a llama2.c file. Weights for
// interleaved RoPE are converted to split halves (chapter 04). Throws FileError, which names
// the file and the tensor.
Model load_model(const std::string& path);

// Throws FileError, which names a tensor that was not read, but for those that may be left out:
// a head that equals the embedding, RoPE's frequencies, which old versions of transformers and
// Mini-LLM saved, and tensors whose names begin or end like this.
void reject_unread_tensors(const SafeTensors& tensors, const JsonFile& json,
                           const std::string& lm_head,  // its name, without ".weight"
                           const Matrix& embed_tokens,  // (V, C)
                           const std::vector<std::string>& unused = {});

// Writes config.json and model.safetensors in Hugging Face's format, in float32 or bfloat16.
// Throws FileError, or ValueError if no supported model_type has its biases, norms and RoPE
// scaling, and as check_described() does.
void export_model(const Model& model, const std::string& folder, DType dtype = DType::float32);

// Throws ValueError, which names the tensor or the setting, unless the configuration, the only
// thing that is written of a model besides its weights, describes the model.
void check_described(const Model& model);

}  // namespace llm::models
