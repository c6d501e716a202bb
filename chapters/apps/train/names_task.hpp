// The first names of assets/: chapter 13's task, and that of some experiments.
#pragma once

#include "chapters/apps/train/training_run.hpp"

namespace llm {

// A model of 138,000 parameters, and its hyperparameters; without data.
TrainingTask names_task();

// Shuffles the names, and splits their tokens into training and validation sets. Returns them.
std::vector<std::string> load_names(TrainingTask& task, Generator& generator);

}  // namespace llm
