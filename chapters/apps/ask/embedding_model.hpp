// The model that makes one vector of a text: an encoder of chapter 25 and its tokenizer.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/apps/ask/text_pairs.hpp"
#include "chapters/models/encoders/fast_encoder.hpp"

namespace llm::ask {

struct EmbeddingModel {
    models::AnyEncoder encoder;
    Tokenizer tokenizer;

    // The ids of a text, [CLS] and [SEP] included, without those for which the model has no
    // position.
    std::vector<Id> encode(const std::string& text) const;
    // The mean over the tokens, of length 1.
    Matrix embed(const std::vector<std::string>& texts) const;  // N -> (N, C)
    // The same with make_fast_encoder(encoder), which several calls may share.
    Matrix embed(const std::vector<std::string>& texts,
                 const models::FastEncoder& fast_encoder) const;
};

// Of a Hugging Face folder with a tokenizer.json. Throws FileError.
EmbeddingModel load_embedding_model(const std::string& folder);
// Writes such a folder, in bfloat16, with the pooling where sentence-transformers reads it.
// Throws FileError.
void save_embedding_model(const EmbeddingModel& model, const std::string& folder);

// A model with a vocabulary for these texts: embeddings of C = 128 numbers and as many layers
// of ModernBERT as given, often none.
EmbeddingModel make_embedding_model(const std::vector<TextPairs>& kinds, std::size_t num_layers,
                                    std::uint32_t seed);

}  // namespace llm::ask
