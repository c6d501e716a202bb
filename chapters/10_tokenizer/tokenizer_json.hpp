// Chapter 10, fourth part: the tokenizers that others have made.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// GPT-2's way to cut a text into words, as a pattern and as a step.
extern const std::string word_pattern;
Step cut_into_words();

// From a tokenizer.json of Hugging Face, or from a tokenizer file of llama2.c, for a model with
// so many tokens. What ends a text is taken from generation_config.json or config.json beside
// it. Throws FileError, with the file and the name of what is missing, damaged or not
// supported.
Tokenizer load_tokenizer(const std::string& path, std::size_t vocab_size);

// Where a model's tokenizer lies: tokenizer.json in a model's folder; beside a file of llama2.c
// tok512.bin, for a vocabulary of 512, or tokenizer.bin. Throws FileError if none is there.
std::string tokenizer_beside(const std::string& model_path, std::size_t vocab_size);

}  // namespace llm
