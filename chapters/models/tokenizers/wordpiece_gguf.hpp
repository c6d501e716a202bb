// BERT's tokenizer in a GGUF file, tokenizer.ggml.model "bert". Its tokens have another
// spelling there: one that begins a word has ▁ before it, one that continues a word has no ##.
// Source: llama.cpp, convert_hf_to_gguf.py, BertModel.set_vocab; llama-vocab.cpp,
// llm_tokenizer_wpm_session.
#pragma once

#include "chapters/25_encoders/wordpiece.hpp"
#include "common/files/gguf.hpp"

namespace llm::models {

// "play" is "▁play", and "##ing" is "ing"; and back. Special tokens keep their spelling.
std::string gguf_of_wordpiece(const std::string& token);
std::string wordpiece_of_gguf(const std::string& token);

// Everything of the tokenizer but its tokens and special tokens. (llama.cpp has no limit of the
// characters of a word; with 101 or more it is unknown here, as in Hugging Face.)
void read_gguf_wordpiece(const Gguf& file, Tokenizer& tokenizer);

// The keys tokenizer.ggml.* for these tokens and their types, by id. Throws ValueError for
// settings that llama.cpp does not have.
GgufMetadata wordpiece_metadata(const Tokenizer& tokenizer,
                                const std::vector<std::string>& tokens,
                                const std::vector<std::int64_t>& types);

}  // namespace llm::models
