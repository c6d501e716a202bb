// Chapter 11, fifth part: tokens of a text of your own.
#pragma once

#include <string>

#include "chapters/10_tokenizer/tokenizer_json.hpp"

namespace llm {

// Learns byte-pair encoding from a text: its characters are the first tokens, behind <unk>;
// then, again and again, the two neighbours that stand together most often become one, until
// there are vocab_size tokens. Pairs never cross the words that GPT-2's pattern cuts. With
// vocab_size 0 every character stays a token. Throws TextError if the text is not UTF-8, is
// empty, or has more characters than vocab_size. Source: Sennrich et al., 2016, algorithm 1.
Tokenizer learn_tokenizer(const std::string& text, std::size_t vocab_size);

// Writes it as a tokenizer.json of Hugging Face. Throws FileError.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& file);

}  // namespace llm
