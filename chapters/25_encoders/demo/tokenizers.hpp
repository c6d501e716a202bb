// Chapter 25: the tokenizers of encoders.
#pragma once

namespace llm {

void words_of_bert();
// The best segmentation of a word, with tokens whose scores are whole numbers.
void viterbi_by_hand();
// A vocabulary trained on a chapter of the Bible, and its words beside those of WordPiece.
void train_tokenizers();

}  // namespace llm
