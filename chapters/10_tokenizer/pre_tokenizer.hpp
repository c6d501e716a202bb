// Chapter 10, file 1 of 5: the steps before BPE: added tokens, normalizers and pre-tokenizers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// A token that does not result from merges. It is matched literally in the text: <|im_end|>.
struct AddedToken {
    std::string content;
    Id id;
    bool lstrip = false, rstrip = false;  // white space before it, or after it, is a part of it
    bool single_word = false;             // no match inside a word
};

// A part of a text: an added token, or the text between two of them.
struct Segment {
    std::string text;
    std::optional<Id> id = std::nullopt;
};

// Splits a text at its added tokens. If several added tokens match at the same position, the
// longest is used. Source: Hugging Face's tokenizers, added_vocabulary.rs.
std::vector<Segment> split_at_added_tokens(const std::vector<AddedToken>& added_tokens,
                                           const std::string& text);

// Changes the text before it is split into words. The type is its name in tokenizer.json.
struct Normalizer {
    std::string type;
    std::function<std::string(const std::string& text)> normalize;
};

// Unicode's normalization form C: "e" followed by a combining accent becomes "é".
Normalizer nfc_normalizer();

// Prepends a prefix to a text that is not empty.
Normalizer prepend_normalizer(const std::string& prefix);

// Replaces each occurrence of a non-empty string.
Normalizer replace_normalizer(const std::string& pattern, const std::string& content);

// Splits a text into words; BPE never merges across word boundaries. split() returns the parts
// of a word of the previous pre-tokenizer; at_start is true for the first word of a text.
struct PreTokenizer {
    std::string type;
    std::function<std::vector<std::string>(const std::string& word, bool at_start)> split;
};

// Applies a pre-tokenizer to each word; at_start is passed on for the first word only.
std::vector<std::string> split_words(const PreTokenizer& pre_tokenizer,
                                     const std::vector<std::string>& words, bool at_start);

// The regular expression that splits a text into words in GPT-2: English contractions,
// letters, digits and punctuation, each with the space before it. The last of several spaces
// is part of the next word; the others match \s+(?!\S). Source: openai/gpt-2, encoder.py.
extern const std::string gpt2_split_pattern;

// Returns the matches of a regular expression as words and, with keep_gaps, also the text
// between matches ("behavior": "Isolated"). Throws TextError for an invalid expression.
PreTokenizer regex_pre_tokenizer(const std::string& type, const std::string& expression,
                                 bool keep_gaps = true);
PreTokenizer gpt2_pre_tokenizer();

// Ends a word after each occurrence of a text ("behavior": "MergedWithPrevious"), as Gemma's
// tokenizer does after spaces. Its normalizer has replaced them by ▁ before, so it never
// splits.
PreTokenizer split_after_pre_tokenizer(const std::string& separator);

// Splits numbers from the rest of a text and, if individual, into single digits. Source:
// Hugging Face tokenizers, Digits.
PreTokenizer digits_pre_tokenizer(bool individual);

// GPT-2's byte-level pre-tokenizer: optionally prepends a space, optionally splits with
// gpt2_split_pattern, then writes each byte as the character byte_to_unicode(byte).
PreTokenizer byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex);

// SentencePiece's convention: each space becomes the replacement, usually ▁, and one is
// prepended to the text (or to every word). With split, each replacement begins a word.
enum class PrependScheme { always, first, never };
PreTokenizer metaspace_pre_tokenizer(const std::string& replacement, PrependScheme scheme,
                                     bool split);

// GPT-2's printable character for each of the 256 bytes. Printable bytes map to themselves,
// the others to U+0100 and following: a space to Ġ. Source: openai/gpt-2,
// encoder.py, bytes_to_unicode.
std::string byte_to_unicode(unsigned char byte);

// The characters of all bytes of a token.
std::string bytes_to_unicode(const std::string& bytes);

// The inverse of bytes_to_unicode, for all characters of a token. A token with any other
// character is returned unchanged. Throws TextError if it is not UTF-8.
std::string unicode_to_bytes(const std::string& token);

// SentencePiece's token for a byte of a character that is not in the vocabulary: <0x41>.
std::string byte_fallback_token(unsigned char byte);

}  // namespace llm
