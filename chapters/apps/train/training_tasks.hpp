// The tasks of chapter 13, of ./learn train and of the experiments.
#pragma once

#include "chapters/apps/train/training_run.hpp"

namespace llm::runs {

// Configurations and hyperparameters, without data: 138,000 parameters for the first names of
// assets/, and, with a vocabulary of 1024, 1.8 million for a text.
TrainingTask names_task();
TrainingTask text_task();

// Shuffles the names, and splits their tokens into training and validation sets. Returns them.
std::vector<std::string> load_names(TrainingTask& task, Generator& generator);

}  // namespace llm::runs
