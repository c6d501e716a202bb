// Chapter 13: the training data, and batches of it.
#pragma once

#include <vector>

#include "common/numbers/random.hpp"

namespace llm {

// A tokenized text: the part that the model is trained on, and the held-out part.
struct Dataset {
    std::vector<Id> train, validation;
};

// Cuts the tokens into 100 pieces of equal size and holds out every tenth piece, so that both
// parts contain all regions of the text. Throws ShapeError unless the validation part has more
// than seq_len tokens.
Dataset train_validation_split(const std::vector<Id>& tokens, std::size_t seq_len);

// B sequences. The target of each position is the token that follows it in the text.
struct Batch {
    IdMatrix input_ids, targets;  // (B, T)
};

// The sequences that start at these positions. Throws ShapeError unless each of them, and one
// token more, lies in the text.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,  // B
               std::size_t seq_len);                                                   // T

// Sequences that start at random positions. Throws ShapeError if the text is too short.
Batch random_batch(const std::vector<Id>& tokens, std::size_t batch_size, std::size_t seq_len,
                   Generator& generator);

// Up to max_batches batches, evenly spaced over the text, for evaluation. A short text gives a
// batch of fewer sequences. Throws ShapeError if it is too short for one.
std::vector<Batch> evaluation_batches(const std::vector<Id>& tokens, std::size_t batch_size,
                                      std::size_t seq_len, std::size_t max_batches);

}  // namespace llm
