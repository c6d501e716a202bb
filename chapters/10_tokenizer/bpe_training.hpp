// Chapter 10, file 3 of 5: training a BPE tokenizer on a text.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// A distinct word of the training text: its current tokens, and its frequency in the text.
struct WordCount {
    std::vector<Id> ids;
    std::size_t count;
};

// How often each pair of adjacent tokens occurs in the words of a text.
using PairCounts = std::unordered_map<TokenPair, std::size_t, PairHash>;
PairCounts count_pairs(const std::vector<WordCount>& words);

// The state of BPE training: the current vocabulary and merges, and the words of the text as
// sequences of these tokens.
struct BPETrainer {
    Tokenizer tokenizer;
    std::vector<WordCount> words;
};

// Adds a token with the next free id. In a byte-level tokenizer, its spelling in the vocabulary
// is that of byte_to_unicode. Throws TextError if the vocabulary has the token already.
Id add_token(Tokenizer& tokenizer, const std::string& bytes);

// Adds the merge of a pair and its token. Its rank is the number of merges before it.
Merge add_merge(Tokenizer& tokenizer, const TokenPair& pair);

// The initial state: the vocabulary is <unk> and all characters of the text, sorted; the text
// is split into words by GPT-2's pattern. Throws TextError if the text is not UTF-8, is empty,
// or has more characters than vocab_size allows (0 allows any number).
BPETrainer make_bpe_trainer(const std::string& text, std::size_t vocab_size);

// One iteration of training: merges the most frequent pair (ties: the lowest ids) into a new
// token, in the vocabulary and in all words. Returns false, and changes nothing, if no pair
// occurs twice.
bool merge_most_frequent_pair(BPETrainer& trainer);

// Trains until the vocabulary has vocab_size tokens or no pair occurs twice. With vocab_size 0
// the result is a character-level tokenizer without merges. Throws as make_bpe_trainer().
// Source: Sennrich et al., 2016, algorithm 1.
Tokenizer train_bpe(const std::string& text, std::size_t vocab_size);

}  // namespace llm
