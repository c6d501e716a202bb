// Chapter 10, file 4 of 5: training byte-level BPE with special tokens, on large texts.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/bpe_training.hpp"

namespace llm {

// Which of several equally frequent pairs is merged first.
enum class TieBreaking {
    lowest_ids,     // as in Hugging Face's BpeTrainer and in train_bpe
    greatest_bytes  // the lexicographically greatest pair of byte strings, as in Stanford CS336
};

// The parameters of Hugging Face's BpeTrainer.
struct BPEOptions {
    std::size_t vocab_size;  // special tokens, 256 bytes and merges
    std::vector<std::string> special_tokens = {};
    std::size_t min_frequency = 2;  // a pair that occurs less often is not merged
    TieBreaking ties = TieBreaking::lowest_ids;
    bool individual_digits = false;  // each digit is a word, so that no merge contains one
};

// Adds a special token with the next free id. It is spelled in the vocabulary as in the text.
// Throws TextError if it is empty, is not UTF-8 or is in the vocabulary already.
void add_special_token(Tokenizer& tokenizer, const std::string& content);

// The initial state of byte-level training: the vocabulary is the special tokens, in this
// order, and the 256 bytes, in the order of their printable characters. The text is split at
// special tokens, then (with individual_digits) at digits, then into words by GPT-2's pattern.
// Throws TextError if the text has no words, if it or a special token is not UTF-8, or if a
// special token is empty or occurs twice.
BPETrainer make_byte_level_trainer(const std::string& text,
                                   const std::vector<std::string>& special_tokens,
                                   bool individual_digits = false);

// Merges the most frequent pairs until the vocabulary has vocab_size tokens or no pair occurs
// min_frequency times. (The other options are those of the initial state.)
void train_merges(BPETrainer& trainer, const BPEOptions& options);

// Trains until the vocabulary has vocab_size tokens or no pair occurs min_frequency times. The
// result encodes any text, and each special token in it as one token. Throws as
// make_byte_level_trainer(), and if vocab_size is too small for the initial vocabulary.
// Source: openai/gpt-2; Hugging Face tokenizers, models/bpe/trainer.rs.
Tokenizer train_byte_level_bpe(const std::string& text, const BPEOptions& options);

}  // namespace llm
