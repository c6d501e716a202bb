// Chapter 11: what the shipped model computes for the five words of the early chapters.
#pragma once

#include "chapters/09_full_model/model.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/files/words.hpp"

namespace llm {

inline constexpr const char* text_of_words = "And the LORD said unto";

// The tensors of layer 2 and its head 4 for this text. Throws ShapeError unless the model has
// the sizes of assets/king_james.
Words words_of(const Model& model, const Tokenizer& tokenizer);

}  // namespace llm
