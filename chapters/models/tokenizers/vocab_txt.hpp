// BERT's vocab.txt: the tokenizer of folders without a tokenizer.json.
#pragma once

#include <optional>
#include <string>

#include "chapters/25_encoders/wordpiece.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// Reads a vocabulary with one token a line, whose id is the number of the line, and the
// settings of the tokenizer_config.json beside it, if there is one: do_lower_case,
// strip_accents, tokenize_chinese_chars and the names of the special tokens. Throws FileError
// for an id of vocab_size or more, a missing special token, or a setting of another tokenizer.
// Source: Hugging Face, tokenization_bert.py, convert_slow_tokenizer.py, BertConverter.
Tokenizer load_vocab_txt(const std::string& path,
                         std::optional<std::size_t> vocab_size = std::nullopt);

// The settings of a normalizer that this tokenizer_config.json has; the others stay. They come
// before those of tokenizer.json. Source: Hugging Face, tokenization_bert_fast.py.
void read_bert_settings(const JsonFile& json, BertNormalizer& settings);

}  // namespace llm::models
