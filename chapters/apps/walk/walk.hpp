// A text on its way through a model, one step for each box of the map.
#pragma once

#include <string>

#include "chapters/09_full_model/model.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm::walk {

// What is shown: the last token of the text, in one layer and one of its query heads.
struct Walk {
    const Model& model;
    const Tokenizer& tokenizer;
    std::string text;
    std::size_t layer = 2, head = 4;
    std::size_t max_length = 8;  // the tokens after these are cut off
};

// Prints all steps. Throws ValueError if the text has fewer than 2 or more than 8 tokens, or
// if there is no such layer or head.
void show_walk(const Walk& walk);

}  // namespace llm::walk
