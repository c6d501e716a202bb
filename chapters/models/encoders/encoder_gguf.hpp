// Published encoders as GGUF files: exported and loaded.
#pragma once

#include "chapters/models/encoders/encoder_model.hpp"
#include "chapters/models/gguf/gguf_export.hpp"

namespace llm::models {

// What a file has besides the encoder.
struct EncoderGgufOptions {
    DType dtype = DType::float32;  // of the matrices; norms and biases stay in float32
    // The vector of a text that llama.cpp gives; none: one for each token.
    std::optional<Pooling> pooling = std::nullopt;
    // Without one, llama.cpp runs the file with ids alone.
    GgufMetadata tokenizer = {{"tokenizer.ggml.model", std::string("no_vocab")}};
};

// Writes an encoder without its heads, which llama.cpp's bert and modern-bert do not have (it
// computes vectors of texts, of token type 0). It approximates GELU with tanh. Returns the
// tensors in another dtype. Throws FileError if the file exists or cannot be written, and
// ValueError for settings that llama.cpp does not have. Source: llama.cpp,
// convert_hf_to_gguf.py, bert.cpp and modern-bert.cpp.
std::vector<TensorInOtherDType> export_gguf(const AnyEncoder& encoder, const std::string& file,
                                            const EncoderGgufOptions& options = {});

// The settings of a file of one of these architectures. Throws FileError, which names the key.
EncoderFamilyConfig read_encoder_config(const Gguf& file);
// Memory for the layers is allocated only after this. Throws FileError if the file has fewer.
void check_last_layer(const Gguf& file, const EncoderFamilyConfig& config);

// Loads a file of one of these architectures. Throws FileError, which names the file and the
// key or tensor.
AnyEncoder load_encoder_gguf(const std::string& file);

// The pooling in a GGUF file, or in a folder of sentence-transformers, which has
// 1_Pooling/config.json; none if it is missing or of another kind. Throws FileError.
std::optional<Pooling> pooling_of(const std::string& path);

}  // namespace llm::models
