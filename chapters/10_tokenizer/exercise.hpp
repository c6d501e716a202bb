// Chapter 10, exercises. Write your answers into exercise.cpp; ./learn exercise 10 checks them.
#pragma once

#include <map>
#include <set>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "common/files/unicode.hpp"

namespace exercise {

using namespace llm;

std::vector<std::string> predicted_merges();        // the tokens of the first three merges
std::vector<std::size_t> predicted_token_counts();  // of six, sixty, sixteen
std::size_t predicted_vocabulary_size();
std::vector<std::size_t> predicted_word_counts();  // of three texts
std::vector<std::size_t> predicted_byte_counts();  // byte-level BPE, byte fallback

// The ids of the concatenated turns of a conversation.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& turns);

// Replaces each occurrence of the pair in the word by the token merged, and updates the counts
// of all pairs that this removes or adds.
void merge_and_update(WordCount& word, const TokenPair& pair, Id merged, PairCounts& counts);

// As tokenizer.encode, but added tokens in the text are encoded as ordinary text.
std::vector<Id> encode_ordinary(const Tokenizer& tokenizer, const std::string& text);

// The text to print after each id: one string per id, with the characters that this id
// completes.
std::vector<std::string> decode_stream(const Tokenizer& tokenizer, const std::vector<Id>& ids);

// BERT's tokens of a word. All tokens except the first begin with "##" in the vocabulary.
std::vector<std::string> wordpiece(const std::string& word,
                                   const std::set<std::string>& vocabulary);

// A BPE trainer in five steps. The state of training:
struct CountedWord {
    std::vector<Id> ids;  // the current tokens of a distinct word
    std::size_t count;    // its frequency in the text
};
struct Training {
    std::vector<std::string> tokens;  // by id; token 0 is "<unk>"
    std::vector<CountedWord> words;   // in the order of the map of count_words
    std::vector<TokenPair> merges;    // in the order of training
};
std::map<std::string, std::size_t> count_words(const std::string& text);
Training start_training(const std::map<std::string, std::size_t>& word_counts);
std::map<TokenPair, std::size_t> pair_counts(const std::vector<CountedWord>& words);
void merge_pair(std::vector<CountedWord>& words, const TokenPair& pair, Id merged);
Training train(const std::string& text, std::size_t vocab_size);

}  // namespace exercise
