// Chapter 25, file 7 of 8: search by vectors, several rankings as one, and how good one is.
#pragma once

#include <map>
#include <vector>

#include "chapters/14_fine_tuning/evaluation.hpp"
#include "chapters/25_encoders/bm25.hpp"

namespace llm {

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
