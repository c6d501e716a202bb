// Chapter 25, file 6 of 8: BM25, search by words.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// The words of a text in lower case: maximal sequences of letters, accents and digits of
// Unicode. Throws TextError if the text is not UTF-8.
std::vector<std::string> words(const std::string& text);

// A document that was found: its number in the collection, and its score.
struct ScoredDocument {
    std::size_t document;
    double score;
};

// The best documents first, at most `count`. Of equal scores, the lower number is first.
std::vector<ScoredDocument> best_first(std::vector<ScoredDocument> documents,
                                       std::size_t count);

// How much the count of a word in a document matters, and how much the document's length.
struct Bm25Parameters {
    double k1 = 1.2;  // 0: a word is in the document or not; large: its count itself
    double b = 0.75;  // 0: the length is ignored; 1: the count is relative to the length
};

// An inverted index: for each word, the documents that contain it. The score of a document is
//
//   sum over the words w of the query:
//       idf(w) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean_length))
//
// with tf, how often w is in the document, and idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5)) for a
// word in n of N documents. Sources: "The Probabilistic Relevance Framework: BM25 and Beyond"
// (Robertson and Zaragoza, 2009), whose idf is Okapi's; Lucene, BM25Similarity.
//
// Implementations differ. The idf of Okapi BM25 lacks the 1: it is negative for a word in more
// than half of the documents, so that a match lowers the score (rank_bm25 replaces it by a
// small positive one). Lucene leaves out the factor k1 + 1, which is the same for all words and
// so changes no order.
class Bm25Index {
 public:
    // Documents as lists of words. Throws ValueError unless k1 >= 0 and 0 <= b <= 1.
    explicit Bm25Index(const std::vector<std::vector<std::string>>& documents,
                       const Bm25Parameters& parameters = {});

    // The documents with a word of the query, best first, at most `count`. A word that the
    // query has twice counts twice.
    std::vector<ScoredDocument> search(const std::vector<std::string>& query,
                                       std::size_t count) const;

    // The inverse document frequency of a word: the rarer, the higher.
    double idf(const std::string& word) const;

 private:
    struct Posting {
        std::size_t document, term_frequency;
    };
    std::unordered_map<std::string, std::vector<Posting>> postings_;  // sorted by document
    std::vector<std::size_t> lengths_;                                // N: words of a document
    double mean_length_ = 0;
    Bm25Parameters parameters_;

    double term_score(const Posting& posting) const;
};

}  // namespace llm
