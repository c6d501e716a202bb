// ./learn train: a model of a text, or of documents.
#pragma once

#include "chapters/apps/train/training_run.hpp"

namespace llm::runs {

// Trains a model on a text or on documents: the files of a folder or of a list with commas, or
// the parts of a text between separators. The program ends after the given minutes; 0: after
// max_steps steps.
struct TextOptions {
    std::string file, document_separator;
    std::vector<std::string> special_tokens = {};  // of documents, after <|endoftext|>
    bool individual_digits = false;                // of the tokenizer of documents
    bool cross_documents = false;                  // attention crosses documents
    std::size_t vocab_size = 1024;
    double minutes = 0;

    bool has_documents() const;
};
void train_on_text(TrainingTask task, OutputFolder output, const TextOptions& options,
                   Generator& generator);

}  // namespace llm::runs
