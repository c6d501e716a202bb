// Loading a tokenizer from any supported file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// Reads the tokenizer of a GGUF file; or, if the name ends in .json, a tokenizer.json of
// Hugging Face, with bos_token_id and eos_token_id from config.json and generation_config.json
// in its folder, or else from tokenizer_config.json, whose add_bos_token is obeyed as in
// transformers; or, if it ends in .txt, BERT's vocabulary; or else a tokenizer file of
// llama2.c. vocab_size is that of the model, if
// there is one. Throws FileError, which names the file and what is missing, damaged or
// unsupported.
Tokenizer load_tokenizer(const std::string& path,
                         std::optional<std::size_t> vocab_size = std::nullopt);

// bos_token_id or eos_token_id of a config.json or generation_config.json: a number or a list
// of numbers, in text_config if the file has it only there; empty: there is none.
std::vector<Id> token_ids(const JsonFile& json, const std::string& key);

// The id of bos_token or eos_token of a tokenizer_config.json: a text, or an object with a
// content. None if the vocabulary lacks the token: the model can then not sample it.
std::optional<Id> special_token_id(const JsonFile& json, const std::string& key,
                                   const Tokenizer& tokenizer);

// The tokenizer file of a model: tokenizer.json in a model folder, or vocab.txt if only that is
// there; a GGUF file itself; next to
// a llama2.c file tok512.bin, for a vocabulary of 512, or tokenizer.bin. Throws FileError if
// there is none.
std::string find_tokenizer_file(const std::string& model_path, std::size_t vocab_size);

}  // namespace llm::models
