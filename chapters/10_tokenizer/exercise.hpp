// Chapter 10, exercises. Write your answers into exercise.cpp; ./learn exercise 10 checks them.
#pragma once

#include <map>
#include <set>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "common/files/unicode.hpp"

namespace exercise {

using namespace llm;

// The tokens of a word after all merges, as apply_merges of the lesson.
std::vector<Id> merge_word(std::vector<Id> ids, const Merges& merges);

// How often each pair of adjacent characters occurs in a text with these words. The map has the
// count of each distinct word.
std::map<std::string, std::size_t> pair_frequencies(
    const std::map<std::string, std::size_t>& word_counts);

// The ids of a conversation whose turns follow each other without anything in between.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& turns);

// As tokenizer.encode, but an added token that is spelled in the text is ordinary text.
std::vector<Id> encode_ordinary(const Tokenizer& tokenizer, const std::string& text);

// The text that can be printed after each of the ids: one string for each id, which holds the
// characters that are complete with this id and were not before.
std::vector<std::string> decode_stream(const Tokenizer& tokenizer, const std::vector<Id>& ids);

// BERT's tokens of a word. Every token but the first begins with "##" in the vocabulary.
std::vector<std::string> wordpiece(const std::string& word,
                                   const std::set<std::string>& vocabulary);

// Byte-level BPE. Tokens 0 to 255 are the bytes, merges[i] is the pair that becomes 256 + i.
std::vector<TokenPair> train_byte_bpe(const std::string& text, std::size_t num_merges);
std::vector<Id> encode_bytes(const std::string& text, const std::vector<TokenPair>& merges);

}  // namespace exercise
