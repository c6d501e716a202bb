// Chapter 13, file 8 of 10: the n-gram baseline.
#pragma once

#include "chapters/13_training/data.hpp"

namespace llm {

// Returns the cross-entropy of n-gram models on the validation set: order + 1 losses, those of
// a uniform distribution, of unigrams, of bigrams and so on. The probabilities are computed
// from counts in the training set: how often each token follows the previous n - 1 tokens.
//
// Counts are smoothed with the distribution of the next shorter context, which is added as
// pseudo_count occurrences. For each order, the pseudo-count with the lowest validation loss is
// used, which makes the baseline slightly better than it would be on unseen text. Throws
// ValueError unless vocab_size^order is below 2^63. Source: MacKay and Peto, 1995.
std::vector<double> ngram_losses(const Dataset& dataset, std::size_t vocab_size,
                                 std::size_t order, const std::vector<double>& pseudo_counts);

}  // namespace llm
