// The second part of the program, and what both parts use: tokens and words in printable form.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// The parts with a separator in between; "none" if there are none.
std::string joined(const std::vector<std::string>& parts, const std::string& separator);

std::string tokens_of(const Tokenizer& tokenizer, const std::vector<Id>& ids);

// Words in printable form, separated by "|".
std::string visible(std::vector<std::string> words);

// Shows the settings of a tokenizer, and how it encodes a text.
void inspect(const std::string& title, const Tokenizer& tokenizer, const std::string& text);

void without_ranks(const Tokenizer& tokenizer, const std::string& text);
void special_tokens(Tokenizer tokenizer);
void fertility(const Tokenizer& tokenizer);

}  // namespace llm
