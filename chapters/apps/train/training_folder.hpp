// The folder of a training run: opening it, and the state in its checkpoint.
#pragma once

#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_task.hpp"

namespace llm::runs {

// The folder of a run without --folder: build/models/NAME, then NAME_2, NAME_3 and so on, so
// that finished runs are kept. If the latest run was interrupted, or is to be resumed, its
// folder.
std::string default_folder(const std::string& name, bool resume);

// Locks the folder. Throws FileError as lock_run_folder does, and if a run would be
// overwritten. Sets the schedule and extra_steps of a resumed run.
void open_training_folder(RunFolder& folder, TrainingTask& task);

// The state of a new run, or that of the checkpoint to resume from.
TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const RunFolder& folder);

// Tells whether steps are left in a resumed run, and how those after its schedule are trained.
void explain_resumed_run(const TrainerState& state, const TrainingTask& task,
                         bool has_time_limit);

}  // namespace llm::runs
