// Chapter 10, steps of the program: training byte-level BPE.
#pragma once

#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// Trains byte-level BPE on sums, with and without a special token.
void byte_level_training(const Tokenizer& king_james);

// Trains on the words of Sennrich et al. with both rules for ties.
void ties(const std::string& four_words);

}  // namespace llm
