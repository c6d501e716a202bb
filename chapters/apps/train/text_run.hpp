// ./learn train: a model of a text, or of documents.
#pragma once

#include <optional>

#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_strategy.hpp"
#include "chapters/apps/train/training_text.hpp"

namespace llm::runs {

// Trains a model on a text. The program ends after about the given minutes; none: after
// max_steps steps. With a group of ranks, the main one reads the text and prints.
void train_on_text(TrainingTask task, RunFolder folder, const TrainingText& text,
                   std::optional<double> minutes, Generator& generator,
                   const std::shared_ptr<TrainingStrategy>& strategy);

}  // namespace llm::runs
