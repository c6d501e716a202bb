// The tokenizer files of llama2.c (tokenizer.bin, tok512.bin).
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm::models {

// Reads vocab_size tokens, or all of the file. A llama2.c file has no list of merges: any two
// tokens may be merged if their concatenation is a token, and the pair whose token has the
// highest score is merged first. Throws FileError if the file is damaged or does not have
// vocab_size tokens.
// Source: karpathy/llama2.c, run.c, build_tokenizer and encode.
Tokenizer load_llama2c_tokenizer(const std::string& path,
                                 std::optional<std::size_t> vocab_size = std::nullopt);

// SentencePiece's merges: each way to split a token into two tokens is a merge, and the highest
// score has the lowest rank. There is one score for each id.
Merges merges_from_scores(const std::unordered_map<std::string, Id>& vocab,
                          const std::vector<double>& scores);

}  // namespace llm::models
