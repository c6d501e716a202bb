// The tokenizer of a GGUF file, llama.cpp's format.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/files/gguf.hpp"

namespace llm::models {

// Reads the tokenizer in the metadata of a GGUF file (tokenizer.ggml.*), of the model "llama"
// (SentencePiece: merges by score, byte fallback), "gpt2" (byte-level BPE) or "bert"
// (WordPiece). A GGUF file has no pre-tokenizers: tokenizer.ggml.pre is the name of a pattern
// that the reader must know.
// Throws FileError, which names the file and the key, if the tokenizer is damaged, has more
// than vocab_size tokens, or needs an unsupported component. Source: llama.cpp,
// src/llama-vocab.cpp.
Tokenizer read_gguf_tokenizer(const Gguf& file,
                              std::optional<std::size_t> vocab_size = std::nullopt);

// The values in tokenizer.ggml.token_type.
struct GgufTokenType {
    enum : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };
};

}  // namespace llm::models
