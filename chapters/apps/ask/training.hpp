// Contrastive training of an embedding model on pairs of texts.
#pragma once

#include "chapters/apps/ask/embedding_model.hpp"

namespace llm::ask {

struct EmbeddingTraining {
    std::size_t steps = 2000, batch_size = 96;
    std::size_t max_tokens = 64;  // of a query and of a passage: a random part of a longer one
    Real learning_rate = Real(0.01);  // of embeddings alone; a layer needs a lower one
    Real temperature = Real(0.05);
    // So that words of the same meaning matter: tokens of both texts that are left out, and
    // tokens of the query that are left out if the passage has them, too.
    Real dropout = Real(0.2), overlap_dropout = Real(0.5);
    std::uint32_t seed = 77;
};

// Trains the model: each batch has pairs of one kind, sampled with replacement; all kinds are
// equally likely. Returns the loss of each step. Throws ValueError if a kind has no pairs, and
// Interrupted after Ctrl-C.
std::vector<Real> train_embedding_model(EmbeddingModel& model,
                                        const std::vector<TextPairs>& kinds,
                                        const EmbeddingTraining& training);

}  // namespace llm::ask
