// GGUF files as fast models, whose weights stay quantized.
#pragma once

#include "chapters/16_quantization/quantized_model.hpp"

namespace llm::models {

// Loads a model of architecture llama, qwen2 or qwen3 from a GGUF file. The weights stay in the
// bytes of their dtypes. Throws FileError as load_model (models/llama).
FastModel load_quantized_model(const std::string& gguf_path,
                               Activations activations = Activations::quantized);

}  // namespace llm::models
