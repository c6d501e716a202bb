// Chapter 25, file 6 of 7: search by words (BM25) and by vectors, several rankings as one, and
// how good one is.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "chapters/14_fine_tuning/evaluation.hpp"
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

// The documents whose embeddings have the highest cosine similarity with that of the query,
// best first, at most `count`. The similarity with a vector of zeros is 0. Throws ValueError if
// the widths differ. Source: sentence-transformers, semantic_search.
std::vector<ScoredDocument> semantic_search(const Vector& query,       // (C)
                                            const Matrix& embeddings,  // (N, C)
                                            std::size_t count);

// A ranking: numbers of documents, the best first. The functions below throw ValueError if a
// ranking has a document twice.
using Ranking = std::vector<std::size_t>;
Ranking ranking_of(const std::vector<ScoredDocument>& documents);

// Several rankings as one: the score of a document is the sum of 1 / (k + rank) over the
// rankings that have it, with ranks from 1. The scores of the rankings themselves, which may
// have other scales, do not matter. Throws ValueError unless k >= 0. Source: "Reciprocal Rank
// Fusion outperforms Condorcet and individual Rank Learning Methods" (Cormack et al., 2009).
std::vector<ScoredDocument> reciprocal_rank_fusion(const std::vector<Ranking>& rankings,
                                                   double k = 60);

// Which documents answer a question, and how well: 1, or grades. All others have 0. (trec_eval
// calls these judgments qrels.) The functions below throw ValueError if no grade is above 0, if
// one is negative or if k is 0.
using Relevance = std::map<std::size_t, double>;

// The share of the relevant documents that are among the first k. Source: trec_eval, recall.
double recall_at(std::size_t k, const Ranking& ranking, const Relevance& relevance);

// Normalized discounted cumulative gain: the sum of grade / log2(rank + 1) over the first k, as
// a fraction of that of the best possible ranking. Source: Järvelin and Kekäläinen, 2002;
// trec_eval, ndcg_cut. (With the gain 2^grade - 1 of Burges et al., 2005, which other libraries
// have, high grades count more; grades of 0 and 1 give the same value.)
double ndcg_at(std::size_t k, const Ranking& ranking, const Relevance& relevance);

// 1 / the rank of the first relevant document, or 0 if the ranking has none. Source: trec_eval,
// recip_rank.
double reciprocal_rank(const Ranking& ranking, const Relevance& relevance);

// The mean over questions. Throws ValueError if there are none or the sizes differ.
double mean_reciprocal_rank(const std::vector<Ranking>& rankings,      // N
                            const std::vector<Relevance>& relevance);  // N

// The mean of a score over N questions, and its 95 % interval over samples of N questions with
// replacement: chapter 14's bootstrap of the difference to 0. (To compare two systems on the
// same questions, use paired_bootstrap itself: its interval is usually narrower.) Throws
// ValueError if there are no scores.
PairedDifference bootstrap_mean(const std::vector<double>& scores,  // N
                                std::uint32_t seed, std::size_t num_resamples = 2000);

}  // namespace llm
