// Chapter 26: the tokenizer of T5.
#pragma once

namespace llm {

// The best segmentation of a word, with tokens whose scores are whole numbers.
void viterbi_by_hand();
// A vocabulary trained on a part of the Bible, and its tokens beside those of WordPiece.
void train_tokenizers();

}  // namespace llm
