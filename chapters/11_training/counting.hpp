// Chapter 11, beside the fourth part: what a model has to beat.
#pragma once

#include "chapters/11_training/session.hpp"

namespace llm {

// What counting alone can do: the mean of -ln p on the held-out part, where p comes from how
// often the n tokens before (2 for a trigram) were followed by which token. What a long context
// has not seen, the next shorter one says. Of no counting at all, and of n = 0 to order - 1.
// Throws ShapeError if vocab_size^order exceeds 64 bits. Source: MacKay and Peto, 1995, with a
// weight of 1.
std::vector<double> ngram_losses(const Corpus& corpus, std::size_t vocab_size,
                                 std::size_t order);

}  // namespace llm
