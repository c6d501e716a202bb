// An encoder with what turns texts into vectors: its tokenizer, and how vectors are pooled.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/models/encoders/encoder_model.hpp"

namespace llm::models {

struct TextEncoder {
    AnyEncoder encoder;
    Tokenizer tokenizer;
    Pooling pooling = Pooling::mean;
    std::size_t max_tokens = 0;  // of a text, with special tokens
};

// Loads a Hugging Face folder or a GGUF file. The tokenizer is that of the model, or of another
// file. Of what sentence-transformers writes beside a model, the pooling and max_seq_length are
// read; modules, poolings and prompts that would change vectors are rejected. Without a pooling
// it is the mean. Throws FileError. Source: sentence-transformers, SentenceTransformer.py.
TextEncoder load_text_encoder(const std::string& path, const std::string& tokenizer_path = "");

}  // namespace llm::models
