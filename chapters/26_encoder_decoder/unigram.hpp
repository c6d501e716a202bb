// Chapter 26, file 2 of 2: Unigram, the tokenizer of T5, ALBERT and XLM-R.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

using Vocabulary = std::unordered_map<std::string, Id>;  // token to id

// A language model in which no token depends on another: the probability of a segmentation is
// the product of those of its tokens, so its score is the sum of their logarithms. A word gets
// the segmentation with the highest score. Where a character has no token, an unknown one is
// used, whose score is 10 below the lowest. Source: "Subword Regularization" (Kudo, 2018);
// google/sentencepiece, unigram_model.cc; Hugging Face tokenizers, models/unigram/model.rs.
struct Unigram {
    std::vector<double> scores;  // (V) ln p of each token; an id from V on is not in the model
    double unknown_score;        // of an unknown character
    std::size_t max_token_size;  // bytes of the longest token

    // Throws ValueError if the model has no token.
    Unigram(const Vocabulary& vocab, std::vector<double> token_scores);

    // Throws TextError if a character is unknown and there is no unknown token.
    std::vector<Id> operator()(const Tokenizer& tokenizer, const std::string& word) const;
};

// All tokens that occur in a word. A path through this lattice, from byte 0 to the end, is a
// segmentation of the word.
struct LatticeEdge {
    std::size_t begin, end;  // in bytes
    std::optional<Id> id;    // none: an unknown character
    double score;
};
std::vector<LatticeEdge> lattice(const Unigram& model, const Vocabulary& vocab,
                                 const std::string& word);  // sorted by begin, then by end

// The best path to each byte of a word: its score, and its last edge. (There is none to a byte
// within a character.) Of equal scores, the one whose last token is longest wins, as in
// SentencePiece and Hugging Face's library. Viterbi algorithm, in one pass.
struct BestPath {
    double score = -std::numeric_limits<double>::infinity();
    LatticeEdge last_edge = {};
};
std::vector<BestPath> viterbi(const std::vector<LatticeEdge>& edges, std::size_t word_size);

// Removes white space and splits there. Source: Hugging Face tokenizers, WhitespaceSplit.
PreTokenizer whitespace_split_pre_tokenizer();

// The state of training. A removed token leaves vocab; tokens and scores keep it.
struct UnigramTrainer {
    std::vector<std::string> tokens;  // by id
    Vocabulary vocab;
    Unigram model;
    std::vector<std::pair<std::string, std::size_t>> word_counts;
};

// The initial state: the words of the text, their characters, and all longer substrings, up to
// max_piece_length characters, that occur at least twice; each with its count times its length
// as weight. Throws TextError if the text has no words or is not UTF-8.
UnigramTrainer make_unigram_trainer(const std::string& text, std::size_t max_piece_length);

// The expectation step: how often each token occurs in the words if each segmentation has its
// probability under the model (forward-backward algorithm), and the logarithm of the
// probability of all words, over all segmentations.
struct ExpectedCounts {
    std::vector<double> counts;  // (V)
    double log_likelihood = 0;
};
ExpectedCounts expected_counts(const UnigramTrainer& trainer);

// The maximization step: the probability of a token is its share of the counts. A token that is
// expected less than 0.5 times is removed, unless it is a single character.
void maximize(UnigramTrainer& trainer, const std::vector<double>& counts);

// Keeps the single characters and, of the other tokens, those whose removal would cost most:
// the count of a token times the difference between its score and the best one of its text
// without it.
void prune(UnigramTrainer& trainer, const std::vector<double>& counts, std::size_t num_tokens);

// Trains a tokenizer with tokens of high likelihood, by expectation maximization and pruning in
// turn. vocab_size includes <pad>, </s> and <unk>. The result encodes a text as the words
// between white space, each with ▁ before it, and </s> after them, as T5's does. Throws
// TextError if the text has no words or is not UTF-8, and ValueError if it has more characters
// than vocab_size allows.
//
// SentencePiece and Hugging Face's UnigramTrainer differ in this: they leave out a substring
// that is always a part of the same longer one; they take exp(digamma(count)) instead of a
// count, which makes rare tokens rarer still; they prune by the best segmentations alone, to
// 1.1 times the vocabulary size, and cut off the rest; and they may remove a character, which
// then gets the lowest score.
Tokenizer train_unigram(const std::string& text, std::size_t vocab_size,
                        std::size_t max_piece_length = 16);

}  // namespace llm
