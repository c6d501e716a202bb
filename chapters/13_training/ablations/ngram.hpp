// Chapter 13: the n-gram baseline that a model is compared with.
#pragma once

#include "chapters/13_training/data.hpp"

namespace llm {

// The mean of -ln p over the validation part, where p comes from the n-gram counts of the
// training part: how often the n - 1 tokens before (2 for a trigram) were followed by each
// token. Returns order + 1 losses: of a uniform distribution, unigrams, bigrams and so on.
//
// Counts are smoothed with the distribution of the next shorter context, which is added as
// pseudo_count occurrences; of several pseudo-counts the one with the lowest loss is used.
// Throws ShapeError unless vocab_size^order is below 2^63. Source: MacKay and Peto, 1995.
std::vector<double> ngram_losses(const Dataset& dataset, std::size_t vocab_size,
                                 std::size_t order, const std::vector<double>& pseudo_counts);

}  // namespace llm
