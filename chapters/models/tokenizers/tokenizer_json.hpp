// Hugging Face's tokenizer.json.
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm::models {

// Reads a tokenizer.json. Without vocab_size, the vocabulary size is the highest id of the file
// plus 1. Throws FileError, which names the file and the key, if the file is damaged, has an id
// of vocab_size or more, or needs an unsupported component.
Tokenizer load_tokenizer_json(const std::string& path,
                              std::optional<std::size_t> vocab_size = std::nullopt);

// Writes a tokenizer of train_bpe, train_byte_level_bpe or train_wordpiece as a tokenizer.json,
// or one with WordPiece that was read from such a file. Throws FileError, and ValueError for
// WordPiece with a normalizer or pre-tokenizer that is not BERT's.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& path);

}  // namespace llm::models
