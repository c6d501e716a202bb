// Fine-tuning of an encoder: a classifier of texts, or vectors for search.
#pragma once

#include <variant>

#include "chapters/apps/fine_tune/fine_tune.hpp"

namespace llm::fine_tune {

// Trains a new classifier and all parameters of the encoder on labels.
struct Classifier {
    static constexpr const char* name = "classifier";
    Steps steps{300, 32, 0.0005f};

    std::vector<Setting> settings() const { return {}; }
};

// Trains the encoder on pairs of a query and its passage: chapter 25's contrastive loss.
struct Contrastive {
    static constexpr const char* name = "contrastive";
    Steps steps{300, 32, 0.0005f};
    float temperature = 0.05f;  // of the cosines

    std::vector<Setting> settings() const { return {{"--temperature", temperature}}; }
};

using EncoderMethod = std::variant<Classifier, Contrastive>;

struct EncoderTuningTask {
    std::string model;        // a Hugging Face folder with a tokenizer.json
    std::string train, test;  // JSON Lines; without test, a tenth of train is held out
    EncoderMethod method;
    runs::RunFolder folder;  // of the result
    std::uint32_t seed = 77;
};

// Trains, tests on held-out examples beside a control, and writes a Hugging Face folder: of a
// classifier with the names of its labels, of an encoder for search as sentence-transformers
// does. Throws FileError and ValueError.
void fine_tune_encoder(EncoderTuningTask task);

}  // namespace llm::fine_tune
