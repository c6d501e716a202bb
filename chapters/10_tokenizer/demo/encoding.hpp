// Chapter 10, steps of the program: how a text is encoded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// Concatenates strings with a separator; "none" if there are none.
std::string joined(const std::vector<std::string>& parts, const std::string& separator);

// The tokens of ids in printable form, separated by spaces.
std::string tokens_of(const Tokenizer& tokenizer, const std::vector<Id>& ids);

// Words in printable form, separated by " | ".
std::string visible(std::vector<std::string> words);

// Applies the next merge of a word: that of the pair with the lowest rank, of equal ones the
// leftmost. Returns the pair, or nothing if there is no merge.
std::optional<TokenPair> merge_next_pair(const Tokenizer& tokenizer, std::vector<Id>& ids);

// Shows the components of a tokenizer and each step of encoding a text, with_merges also each
// merge.
void inspect(const std::string& title, const Tokenizer& tokenizer, const std::string& text,
             bool with_merges);

void without_ranks(const Tokenizer& tokenizer, const std::string& text);
void special_tokens(Tokenizer tokenizer);
void fertility(const Tokenizer& tokenizer);

}  // namespace llm
