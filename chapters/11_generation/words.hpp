// Chapter 11, file 6 of 7: what the shipped model computes for the words of the early chapters.
#pragma once

#include "chapters/09_full_model/model.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/files/words.hpp"

namespace llm {

inline constexpr const char* text_of_words = "And the LORD said unto";

// A token without its leading space; one that is a space or has a line feed in printable form.
std::string word_of(const Tokenizer& tokenizer, Id id);

// The tensors of layer 2 and its head 4 for a text. Throws ValueError unless the text has 2 to
// 16 tokens, and the model the sizes of assets/king_james.
Words words_of(const Model& model, const Tokenizer& tokenizer,
               const std::string& text = text_of_words);

}  // namespace llm
