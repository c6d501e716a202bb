// A trained model against n-gram models, for chapter 13 and ./learn train.
#pragma once

#include "chapters/apps/train/training_run.hpp"

namespace llm::runs {

// The n-gram baseline: the validation tokens on which it and the model are compared, and the
// losses of the n-gram models, in nats per character.
struct NgramBaseline {
    std::vector<Id> tokens;
    std::vector<double> losses;
};
// With a time limit in seconds, the n-grams are counted in a part of the training text, if
// counting all of them would take longer.
NgramBaseline ngram_baseline(const TrainingTask& task, std::vector<Id> validation_tokens,
                             double time_limit = infinity);

// Shows the bits per character of n-gram models and of this model.
void compare_with_ngrams(const TrainingTask& task, const Model& model,
                         const NgramBaseline& baseline);

}  // namespace llm::runs
