// Chapter 10, third part: Hugging Face's tokenizer.json.
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// Reads a tokenizer.json. Without vocab_size the vocabulary ends with the highest id of the
// file. Throws FileError, with the file and the name of the key, for a file that is damaged,
// has ids of vocab_size or more, or needs a component that is not supported.
Tokenizer load_tokenizer_json(const std::string& path,
                              std::optional<std::size_t> vocab_size = std::nullopt);

// Writes a tokenizer of train_bpe as a tokenizer.json. Throws FileError.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& path);

}  // namespace llm
