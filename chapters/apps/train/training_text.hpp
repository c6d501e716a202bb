// The text that ./learn train learns from: its documents, and what is shown of them.
#pragma once

#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_task.hpp"

namespace llm::runs {

// One text, or documents: the files of a folder or of a list with commas, or the parts of a
// text between separators.
struct TrainingText {
    std::string file, document_separator;
    std::vector<std::string> special_tokens = {};  // of documents, after <|endoftext|>
    bool individual_digits = false;                // of the tokenizer of documents
    bool cross_documents = false;                  // attention crosses documents
    std::size_t vocab_size = 1024;

    bool has_documents() const;
};

// The documents, or one text. Throws FileError if a file cannot be read.
std::vector<std::string> read_documents(const TrainingText& text);

// Trains a tokenizer, and splits the tokens into training and validation sets. That of
// documents is a byte-level tokenizer, and they are packed.
void tokenize(TrainingTask& task, const std::vector<std::string>& documents,
              const TrainingText& text);

// Writes generation_config.json, so that generation begins and stops with the end-of-text
// token.
void write_generation_config(const TrainingTask& task, const RunFolder& folder);

// Shows document ids, position ids and the mask of a few tokens.
void show_packed_documents(const TrainingTask& task);

// Shows the validation loss of the model within documents and across them.
void compare_masks(const TrainingTask& task, const Model& model);

}  // namespace llm::runs
