// The encoder of a T5 as a GGUF file: exported and loaded.
#pragma once

#include "chapters/models/encoders/t5.hpp"
#include "chapters/models/gguf/gguf_export.hpp"

namespace llm::models {

// Writes the encoder alone, llama.cpp's t5encoder, whatever the class. Biases stay in float32.
// Returns the tensors in another dtype. Throws FileError if the file exists or cannot be
// written, and ValueError for settings that llama.cpp does not have. Source: llama.cpp,
// convert_hf_to_gguf.py, T5EncoderModel.
std::vector<TensorInOtherDType> export_gguf(const T5FamilyModel& t5, const std::string& file,
                                            DType dtype, const GgufMetadata& tokenizer);

// Loads such a file as a T5EncoderModel. Throws FileError, which names the file and the key or
// tensor.
T5FamilyModel load_t5_gguf(const std::string& file);

}  // namespace llm::models
