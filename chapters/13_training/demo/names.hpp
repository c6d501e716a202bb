// Chapter 13: a model of the first names of assets/, from its data to forty new names.
#pragma once

#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_task.hpp"

namespace llm {

void names_demo(runs::TrainingTask task, runs::RunFolder folder, Generator& generator);

}  // namespace llm
