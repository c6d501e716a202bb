// A trained model against n-gram models, for chapter 13 and ./learn train.
#pragma once

#include <optional>

#include "chapters/apps/train/training_task.hpp"

namespace llm::runs {

// The n-gram baseline: the validation tokens on which it and the model are compared, and the
// losses of the n-gram models, in nats per character.
struct NgramBaseline {
    std::vector<Id> tokens;
    std::vector<double> losses;
};
// With a time limit, not all is used: of the training text 4 million characters per minute, and
// 1 + minutes times the batches of an evaluation.
NgramBaseline ngram_baseline(const TrainingTask& task,
                             std::optional<double> minutes = std::nullopt);

// Shows the bits per character of n-gram models and of this model.
void compare_with_ngrams(const TrainingTask& task, const Model& model,
                         const NgramBaseline& baseline);

}  // namespace llm::runs
