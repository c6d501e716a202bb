// The parts of a run that are for documents.
#pragma once

#include "chapters/apps/train/text_run.hpp"

namespace llm::runs {

// The documents, or one text. Throws FileError if a file cannot be read.
std::vector<std::string> read_documents(const TextOptions& options);

// Trains a byte-level tokenizer on the documents, packs them, and splits them into training and
// validation sets.
void tokenize_documents(TrainingTask& task, const std::vector<std::string>& documents,
                        const TextOptions& options);

// Writes generation_config.json, so that generation begins and stops with the end-of-text
// token.
void write_generation_config(const TrainingTask& task, const OutputFolder& output);

// Shows document ids, position ids and the mask of a few tokens.
void packed_documents(const TrainingTask& task);

// Shows the validation loss of the model within documents and across them.
void compare_masks(const TrainingTask& task, const Model& model);

}  // namespace llm::runs
