// Chapter 10, third part: text to ids, and back.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// Which two neighbours are joined into which token. The lowest rank goes first.
struct Merge {
    double rank;
    Id joined;
};
struct PairHash {
    std::size_t operator()(const std::pair<Id, Id>& pair) const {
        return std::hash<Id>()((pair.first << 32) + pair.second);  // ids have 31 bits
    }
};
using Merges = std::unordered_map<std::pair<Id, Id>, Merge, PairHash>;

// Joins two neighbours, again and again: of all pairs the one with the lowest rank, of equals
// the leftmost. Source: "Neural Machine Translation of Rare Words with Subword Units" (Sennrich
// et al., 2016), section 3.2.
std::vector<Id> join_pairs(std::vector<Id> ids, const Merges& merges);

// GPT-2's way to write each of the 256 bytes as a printable character: those that are one stand
// for themselves, the others for U+0100 and on. A space is Ġ. Source: openai/gpt-2, encoder.py.
std::string byte_alphabet(unsigned char byte);

// SentencePiece's way to write a byte for which it has no character: <0x41>.
std::string byte_name(unsigned char byte);

// What happens to a text before pairs are joined: each step makes words of a word. It is told
// whether the word is the beginning of the text.
struct Step {
    std::string name;  // as tokenizer.json calls it
    std::function<std::vector<std::string>(const std::string& word, bool at_start)> apply;
};

// A part of a text: one of these tokens, or what lies between two of them. Of tokens that begin
// at one place the longest is taken.
struct Section {
    std::string text;
    Id added = -1;  // the token
};
std::vector<Section> cut_out(const std::vector<std::pair<std::string, Id>>& tokens,
                             const std::string& text);

// Byte-pair encoding, with everything that a tokenizer.json or a file of llama2.c says of it.
struct Tokenizer {
    std::vector<std::string> pieces;                // of each id the bytes it stands for
    std::unordered_map<std::string, Id> ids;        // as the file spells them
    std::vector<std::pair<std::string, Id>> added;  // found in a text as they are: <|im_end|>
    std::vector<Step> steps;
    std::unordered_map<std::string, Id> added_words;  // found as words, after some steps: ▁<s>
    Merges merges;

    bool whole_words_first = false;  // a word that is a token is not taken apart (Llama 3)
    bool byte_fallback = false;      // an unknown character becomes its bytes: <0xE2>
    Id unknown = -1;                 // else it becomes this token, if there is one
    bool fuse_unknown = false;       // and several in a row become one

    std::vector<Id> start;           // stands before every text: <s>
    Id start_of_nothing = -1;        // begins an empty text if start is empty
    std::vector<Id> ends;            // a text that is being written ends with one of them
    std::set<Id> silent;             // decode leaves them out
    bool drops_first_space = false;  // which encode has put there

    // Throws TextError if the text is not UTF-8 or has a character for which there is no token.
    std::vector<Id> encode(const std::string& text) const;

    // Its parts. What each step makes of a text, the words of the last one; and the tokens of a
    // word: its characters, joined.
    std::vector<std::vector<std::string>> stages(const std::string& text, bool at_start) const;
    std::vector<Id> encode_word(const std::string& word) const;
    std::vector<Id> ids_of_character(
        const std::string& character) const;  // none: it is unknown

    // The bytes of all tokens, one behind the other. A character may be spread over several
    // tokens, so a text may end in half of one, or hold bytes that are no UTF-8. An id without
    // a piece is left out.
    std::string decode(const std::vector<Id>& token_ids) const;
};

// A token for every byte and nothing learned: <unk>, <s>, </s>, then the 256 bytes, V = 259.
Tokenizer bytes_as_tokens();

}  // namespace llm
