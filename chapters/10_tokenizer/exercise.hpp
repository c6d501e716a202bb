// Chapter 10, exercises. Write your answers into exercise.cpp; ./learn exercise 10 checks them.
#pragma once

#include <map>
#include <set>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "common/files/unicode.hpp"

namespace exercise {

using namespace llm;

// The tokens of a word after all merges, as apply_merges() returns them.
std::vector<Id> merge_word(std::vector<Id> ids, const Merges& merges);

// The frequency of each pair of adjacent characters in a text, given the frequency of each
// distinct word.
std::map<std::string, std::size_t> pair_frequencies(
    const std::map<std::string, std::size_t>& word_counts);

// The ids of the concatenated turns of a conversation.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& turns);

// As tokenizer.encode, but added tokens in the text are encoded as ordinary text.
std::vector<Id> encode_ordinary(const Tokenizer& tokenizer, const std::string& text);

// The text to print after each id: one string per id, with the characters that this id
// completes.
std::vector<std::string> decode_stream(const Tokenizer& tokenizer, const std::vector<Id>& ids);

// BERT's tokens of a word. All tokens except the first begin with "##" in the vocabulary.
std::vector<std::string> wordpiece(const std::string& word,
                                   const std::set<std::string>& vocabulary);

// Byte-level BPE. Tokens 0 to 255 are the bytes, merges[i] is the pair that becomes 256 + i.
std::vector<TokenPair> train_byte_bpe(const std::string& text, std::size_t num_merges);
std::vector<Id> encode_bytes(const std::string& text, const std::vector<TokenPair>& merges);

}  // namespace exercise
