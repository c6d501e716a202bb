// Chapter 18: writing models with mixtures as GGUF files.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/18_experts/mixture_model.hpp"

namespace llm {

// Writes a model and its tokenizer as a GGUF file of architecture llama (Mixtral), qwen3moe,
// gpt-oss or llama4; in float32. llama.cpp fixes some settings in its code: gates that sum to 1
// and no dense layers (qwen3moe), windows in every second layer, rounded limits of YaRN and a
// swiglu_limit of 7 (gpt-oss), chunks of 8192 and RoPE in three of four layers (llama4). Throws
// FileError if the file exists or cannot be written, and ShapeError for other settings. Source:
// llama.cpp, convert_hf_to_gguf.py and llama-model.cpp.
void export_gguf(const MixtureModel& model, const Tokenizer& tokenizer,
                 const std::string& file);

}  // namespace llm
