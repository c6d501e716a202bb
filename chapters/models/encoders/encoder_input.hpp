// What an encoder reads: ids, or texts and their tokens.
#pragma once

#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/encoders/sentence_transformers.hpp"
#include "chapters/models/run_model.hpp"

namespace llm::models {

struct EncoderInput {
    BatchEncoding batch;
    std::optional<Tokenizer> tokenizer = std::nullopt;  // none: the ids were given
    std::optional<Id> mask_token_id = std::nullopt;     // none: the tokenizer has no such token
    bool has_pairs = false;                             // of texts
    SentenceTransformer vectors = {};                   // of texts
};

// The ids of --tokens or the texts of --text, padded to the longest. Throws FileError, and
// ValueError for a text that is longer than the model's positions, and for second texts that
// are not as many as the first.
EncoderInput read_encoder_input(const ModelRun& run, const EncoderFamilyConfig& config);

// The tokenizer beside the model, or that of --tokenizer. Throws FileError.
Tokenizer encoder_tokenizer(const ModelRun& run, std::size_t vocab_size);

// The token that hides another one: mask_token of tokenizer_config.json in this folder, or else
// [MASK] or <mask>. Throws FileError.
std::optional<Id> find_mask_token(const std::string& folder, const Tokenizer& tokenizer);

}  // namespace llm::models
