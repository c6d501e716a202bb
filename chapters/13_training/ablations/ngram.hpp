// Chapter 11, beside the fourth part: what a model has to beat.
#pragma once

#include "chapters/13_training/trainer.hpp"

namespace llm {

// What counting alone can do: the mean of -ln p on the held-out part, where p comes from how
// often the n tokens before (2 for a trigram) were followed by which token. What a long context
// has seldom seen, the next shorter one says, with the weight of so many occurrences; of
// several weights the best is taken. Of no counting at all, and of n = 0 to order - 1. Throws
// ShapeError unless vocab_size^order is below 2^63. Source: MacKay and Peto, 1995.
std::vector<double> ngram_losses(const Corpus& corpus, std::size_t vocab_size,
                                 std::size_t order, const std::vector<double>& weights);

}  // namespace llm
