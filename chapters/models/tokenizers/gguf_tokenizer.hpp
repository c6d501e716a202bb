// The tokenizer of a GGUF file, llama.cpp's format.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/files/gguf.hpp"

namespace llm::models {

// Reads the tokenizer in the metadata of a GGUF file (tokenizer.ggml.*), of the model "llama"
// (SentencePiece: merges by score, byte fallback) or "gpt2" (byte-level BPE). A GGUF file has
// no pre-tokenizers: tokenizer.ggml.pre is the name of a pattern that the reader must know.
// Throws FileError, which names the file and the key, if the tokenizer is damaged, has more
// than vocab_size tokens, or needs an unsupported component. Source: llama.cpp,
// src/llama-vocab.cpp.
Tokenizer read_gguf_tokenizer(const Gguf& file,
                              std::optional<std::size_t> vocab_size = std::nullopt);

// The values in tokenizer.ggml.token_type.
struct GgufTokenType {
    enum : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };
};

// What a name in tokenizer.ggml.pre stands for.
struct PreType {
    std::vector<std::string> names;  // the first is the one that llama.cpp's converter writes
    std::vector<std::string> patterns;  // each one splits the words of the previous one
    bool nfc = false;
    bool ignore_merges = false;
    bool add_bos = false;  // if tokenizer.ggml.add_bos_token is missing

    std::vector<PreTokenizer> pre_tokenizers() const;
};

// All that are supported.
const std::vector<PreType>& pre_types();
std::string names_of_pre_types();  // "gpt-2, llama-bpe, ..."

}  // namespace llm::models
