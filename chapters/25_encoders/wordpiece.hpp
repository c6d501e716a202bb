// Chapter 25, file 7 of 7: WordPiece, the tokenizer of BERT.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chapters/10_tokenizer/byte_level_training.hpp"

namespace llm {

// The model of words of BERT: no merges, but a vocabulary in which a token that continues a
// word begins with "##": "playing" is "play" and "##ing". From the left, the longest token that
// matches is taken. A word of which a part has no token is the unknown token as a whole, and so
// is a word of too many characters. Source: "BERT" (Devlin et al., 2018); google-research/bert,
// tokenization.py, WordpieceTokenizer.
struct WordPiece {
    std::string continuing_subword_prefix = "##";
    std::size_t max_input_chars_per_word = 100;

    std::vector<Id> operator()(const Tokenizer& tokenizer, const std::string& word) const;
};

// The normalizer of BERT, of which each step can be left out. Source: tokenization.py,
// BasicTokenizer; Hugging Face tokenizers, normalizers/bert.rs.
struct BertNormalizer {
    bool clean_text = true;            // removes control characters; white space becomes " "
    bool handle_chinese_chars = true;  // a space before and after each Chinese character
    std::optional<bool> strip_accents = std::nullopt;  // "é" becomes "e"; none: as lowercase
    bool lowercase = true;

    std::string operator()(const std::string& text) const;
};
Normalizer bert_normalizer(const BertNormalizer& settings);

// Splits at white space, which is removed, and makes each punctuation character a word: "don't"
// becomes "don", "'" and "t". All ASCII characters that are neither letters nor digits are
// punctuation, also those that are symbols in Unicode: "$", "+", "^". Source: Hugging Face
// tokenizers, pre_tokenizers/bert.rs.
PreTokenizer bert_pre_tokenizer();

// The text of a token within a decoded text: that of "##ing" is "ing", that of "play" " play".
// With cleanup, the space before a punctuation mark is left out: that of "." is ".". Source:
// Hugging Face tokenizers, decoders/wordpiece.rs.
std::string wordpiece_text(const std::string& token, const std::string& prefix, bool cleanup);

// Replaces the spelling of each token by its text within a decoded text. The first token of a
// text keeps its spelling, also its prefix: ["##ing"] decodes to "##ing".
void decode_wordpieces(Tokenizer& tokenizer, const std::string& prefix, bool cleanup);

// How a token is spelled in the vocabulary: ##ing, ▁the. Source: Hugging Face,
// convert_ids_to_tokens.
std::string spelling_of(const Tokenizer& tokenizer, Id id);
// The spellings of a text's tokens, with a space between them.
std::string tokens_of_text(const Tokenizer& tokenizer, const std::string& text);

// The parameters of Hugging Face's WordPieceTrainer, and whether the text has lower case only.
struct WordPieceOptions {
    std::size_t vocab_size;  // special tokens, characters, characters with ##, merges
    std::vector<std::string> special_tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    std::size_t min_frequency = 0;
    bool lowercase = true;
};

// Trains a vocabulary as Hugging Face's WordPieceTrainer does: BPE of chapter 10, in words
// whose characters except the first begin with "##"; the merges are then forgotten. (Hugging
// Face's library numbers the characters with "##" in a random order, so its vocabularies differ
// from run to run where several pairs are equally frequent. Here the order is that of the
// sorted words.) The result encodes a text as [CLS] text [SEP]. Throws TextError if the text
// has no words or is not UTF-8, and ValueError if a special token is empty or given twice, if
// [UNK], [CLS] or [SEP] is none, or if vocab_size is too small for special tokens and
// characters.
//
// The original WordPiece, with which BERT's vocabulary was made, merges another pair: not the
// most frequent one, but the one that makes the text most probable under a language model of
// the tokens. This is usually given as the highest count(ab) / (count(a) * count(b)): a pair of
// rare tokens that occur only together comes before a frequent pair of frequent ones. Source:
// "Japanese and Korean voice search" (Schuster and Nakajima, 2012). Google has not published
// that trainer.
Tokenizer train_wordpiece(const std::string& text, const WordPieceOptions& options);

// Two texts as one input: [CLS] first [SEP] second [SEP]. BERT adds another vector to the
// tokens of the second text, so that it can tell them apart.
struct EncodedPair {
    std::vector<Id> input_ids;       // T
    std::vector<Id> token_type_ids;  // T: 0 up to the first [SEP], then 1
};
EncodedPair encode_pair(const Tokenizer& tokenizer, const std::string& first,
                        const std::string& second);

}  // namespace llm
