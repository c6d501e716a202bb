// Chapter 17: writing Gemma 2 and Gemma 3 as GGUF files.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/17_long_context/long_context_model.hpp"

namespace llm {

// Writes a model and its tokenizer as a GGUF file of architecture gemma2 or gemma3, or of llama
// for a Mistral whose context fits into its window; in float32. (Chapter 16 quantizes.)
// llama.cpp fixes some settings in its code: windows in every second layer (gemma2) or five of
// six (gemma3), theta 10,000 for the windows of gemma3, and scores times 1/√D. Throws FileError
// if the file exists or cannot be written, and ShapeError for other settings. Source:
// llama.cpp, convert_hf_to_gguf.py and llama-model.cpp.
void export_gguf(const LongContextModel& model, const Tokenizer& tokenizer,
                 const std::string& file);

}  // namespace llm
