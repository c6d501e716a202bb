// Published models as GGUF files: exported and loaded.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/models/family_model.hpp"
#include "chapters/models/gguf/gguf_export.hpp"

namespace llm::models {

// Writes a model and its tokenizer as a GGUF file of the architecture that llama.cpp has for
// the family. Matrices are stored in dtype; routers, norms, biases and sinks stay in float32.
// llama.cpp fixes some settings in its code: windows in every second layer (gemma2, gpt-oss) or
// five of six (gemma3), none in llama (Mistral, Mixtral), theta 10,000 for the windows of
// gemma3, routing weights that sum to 1 and no dense layers (qwen3moe), rounded limits of YaRN
// and a swiglu_limit of 7 (gpt-oss), chunks of 8192 and RoPE in three of four layers (llama4).
// Returns the tensors in another dtype. Throws FileError if the file exists or cannot be
// written, and ValueError for other settings. Source: llama.cpp, convert_hf_to_gguf.py and
// llama-model.cpp.
std::vector<TensorInOtherDType> export_gguf(const FamilyModel& model,
                                            const Tokenizer& tokenizer, const std::string& file,
                                            DType dtype = DType::float32);

// Loads a file of one of these architectures. What llama.cpp fixes in its code holds, also for
// files of other makers. Throws FileError, which names the file and the key or tensor.
FamilyModel load_family_gguf(const std::string& file);

// Names outside of the layers, and the tensors of LongRoPE's divisors.
TensorNames gguf_model_names(const Family& family);
inline const std::string gguf_long_factors = "rope_factors_long.weight",
                         gguf_short_factors = "rope_factors_short.weight";

}  // namespace llm::models
