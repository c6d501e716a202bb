// Chapter 10, file 2 of 5: byte-pair encoding. Text to token ids, and back.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chapters/10_tokenizer/pre_tokenizer.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// A pair of adjacent tokens, and the token that replaces it. Lower ranks are merged first.
using TokenPair = std::pair<Id, Id>;
struct Merge {
    double rank;
    Id merged;
};
struct PairHash {
    std::size_t operator()(const TokenPair& pair) const {
        return std::hash<Id>()((pair.first << 32) + pair.second);  // ids have 31 bits
    }
};
using Merges = std::unordered_map<TokenPair, Merge, PairHash>;

// Merges pairs of adjacent tokens until none has a merge: in each iteration the pair with the
// lowest rank (ties: the leftmost). Source: "Neural Machine Translation of Rare Words
// with Subword Units" (Sennrich et al., 2016), section 3.2.
std::vector<Id> apply_merges(std::vector<Id> ids, const Merges& merges);

// Returns the same ids in O(n log n) instead of O(n^2) time for n ids: a priority queue holds
// the pairs that have a merge, a doubly linked list the tokens.
std::vector<Id> apply_merges_with_queue(const std::vector<Id>& ids, const Merges& merges);

// A BPE tokenizer, with the settings of a tokenizer.json or of a llama2.c file.
struct Tokenizer {
    std::vector<std::string> token_bytes;       // the bytes of each id in a decoded text
    std::unordered_map<std::string, Id> vocab;  // token to id, spelled as in the file
    Merges merges;

    std::vector<AddedToken> added_tokens;             // matched in the original text
    std::vector<AddedToken> normalized_added_tokens;  // matched in the normalized text
    std::vector<Normalizer> normalizers;
    std::vector<PreTokenizer> pre_tokenizers;

    // Other tokenizers than BPE: the ids of a word, and the spelling of a token in the
    // vocabulary. Empty: encode_word applies merges; the spelling is that of the bytes.
    std::function<std::vector<Id>(const Tokenizer&, const std::string& word)> word_model;
    std::function<std::string(const std::string& bytes)> spelling;

    bool ignore_merges = false;  // a word of the vocabulary is one token (Llama 3)
    bool byte_fallback = false;  // an unknown character is encoded as bytes: <0xE2>
    std::optional<Id> unk_token_id = std::nullopt;  // otherwise as this token
    bool fuse_unk = false;  // adjacent unknown tokens are fused into one

    std::vector<Id> prefix_tokens;  // prepended to the ids of every text: <s>
    std::vector<Id> suffix_tokens;  // appended
    std::optional<Id> bos_token_id =
        std::nullopt;                  // encodes an empty text if prefix_tokens is empty
    std::vector<Id> eos_token_ids;     // generation stops at any of them
    std::set<Id> all_special_ids;      // decode skips them
    bool strip_leading_space = false;  // decode removes the space that encode prepends
    // The bytes of each id if it is the first of a decoded text; empty: those of token_bytes.
    std::vector<std::string> first_token_bytes;
    std::set<Id> byte_token_ids;  // byte fallback: tokens that decode to one byte

    std::size_t vocab_size() const { return token_bytes.size(); }

    // Is the last pre-tokenizer ByteLevel, so that all characters of a word stand for bytes?
    bool is_byte_level() const;

    // Throws TextError if the text is not UTF-8, or if a character has no token and there is no
    // unknown token.
    std::vector<Id> encode(const std::string& text) const;

    // The steps of encode: normalizers, pre-tokenizers, and BPE on one word: its characters as
    // tokens, then the merges.
    std::string normalize(const std::string& text) const;
    std::vector<std::string> pre_tokenize(const std::string& text, bool at_start) const;
    std::vector<Id> encode_word(const std::string& word) const;
    std::vector<Id> encode_character(const std::string& character) const;  // empty: unknown

    // The text of the tokens, without special tokens and ids that have no token. Bytes that are
    // not UTF-8 become U+FFFD: one for each byte token of a run that is not UTF-8 as a whole,
    // and otherwise as in replace_invalid_utf8.
    std::string decode(const std::vector<Id>& token_ids) const;

    // The bytes of the tokens, without replacements. A character may consist of several tokens,
    // so the result can end in the middle of a character.
    std::string decode_bytes(const std::vector<Id>& token_ids) const;

    // A token in printable form: "▁" for a space, "\n" for a line feed, "<5>" if id 5 has no
    // bytes.
    std::string token_text(Id id) const;
};

// Makes each token spelled <0x00> to <0xFF> decode to that byte.
void decode_byte_fallback_tokens(Tokenizer& tokenizer);

// A tokenizer without merges: <unk>, <s>, </s> and the 256 bytes, V = 259.
Tokenizer byte_tokenizer();

}  // namespace llm
