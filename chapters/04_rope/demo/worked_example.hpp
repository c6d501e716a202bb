// Chapter 04, steps of the program: a rotated pair, and two words.
#pragma once

#include <cstddef>

namespace llm {

void rotate_one_pair();

// The positions of "said", whose query is rotated, and of "LORD", whose key is. With
// show_pairs, also shows the rotated pairs of both.
struct WordPositions {
    std::size_t query = 3, key = 2;
    bool show_pairs = false;
};
void rotate_words(const WordPositions& positions);

}  // namespace llm
