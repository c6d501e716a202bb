// Chapter 13: a model of the first names of assets/, from its data to forty new names.
#pragma once

#include "chapters/apps/train/training_run.hpp"

namespace llm {

void names_demo(runs::TrainingTask task, runs::OutputFolder output, Generator& generator);

}  // namespace llm
