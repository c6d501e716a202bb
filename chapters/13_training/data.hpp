// Chapter 13, file 1 of 10: training data and batches.
#pragma once

#include <vector>

#include "common/numbers/random.hpp"

namespace llm {

// A tokenized text: the part that the model is trained on, and the held-out part.
struct Dataset {
    std::vector<Id> train, validation;
};

// Splits the tokens into 100 contiguous chunks of equal size and holds out every tenth chunk,
// so that both sets contain tokens from the whole text. Throws ValueError unless the
// validation set has more than seq_len tokens.
Dataset train_validation_split(const std::vector<Id>& tokens, std::size_t seq_len);

// B sequences of T tokens. The target of each token is the token after it in the text.
struct Batch {
    IdMatrix input_ids, targets;  // (B, T)
};

// Returns the sequences that start at the given positions. Throws ValueError if a sequence, or
// the target of its last token, extends beyond the last token of the text.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,  // B
               std::size_t seq_len);                                                   // T

// Returns sequences that start at random positions. Throws ValueError unless the text has more
// than seq_len tokens. Source: nanoGPT, get_batch.
Batch random_batch(const std::vector<Id>& tokens, std::size_t batch_size, std::size_t seq_len,
                   Generator& generator);

// Returns up to max_batches batches for evaluation, evenly spaced over the text. If the text
// has fewer than batch_size sequences, there is one smaller batch. Throws ValueError unless the
// text has more than seq_len tokens.
std::vector<Batch> evaluation_batches(const std::vector<Id>& tokens, std::size_t batch_size,
                                      std::size_t seq_len, std::size_t max_batches);

}  // namespace llm
