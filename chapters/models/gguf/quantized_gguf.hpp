// GGUF files as fast models, whose weights stay quantized.
#pragma once

#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"

namespace llm::models {

// A matrix in the bytes of its dtype, with chapter 16's kernels. Throws FileError for a type
// that has none.
WeightMatrix read_weight_matrix(const Gguf& file, GgufTensors& tensors, const std::string& name,
                                std::size_t out, std::size_t in, Activations activations);

// Loads a model of architecture llama, qwen2 or qwen3 from a GGUF file. The weights stay in the
// bytes of their dtypes. Throws FileError as load_model (models/llama).
FastModel load_quantized_model(const std::string& gguf_path,
                               Activations activations = Activations::quantized);

}  // namespace llm::models
