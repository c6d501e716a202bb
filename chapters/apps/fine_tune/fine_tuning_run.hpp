// The steps of fine-tuning, whatever the method: reports, checkpoints, and resuming.
#pragma once

#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/apps/fine_tune/fine_tune.hpp"
#include "chapters/apps/runs/step_run.hpp"

namespace llm::fine_tune {

struct FineTuningRun {
    FineTuningTask task;
    ChatEncoder encoder;
    FineTuner tuner;
    std::vector<Model> gradients;
    Generator generator;
    std::vector<Setting> settings;  // of checkpoints; empty: there are none
};

// The settings that identify a run, but for those of its method alone: a checkpoint is only
// resumed with equal ones.
std::vector<Setting> settings_of(const FineTuningRun& run, const std::string& method,
                                 const Steps& steps);

// Takes all steps, or the remaining ones, as runs::run_steps does.
std::vector<Line> run_steps(FineTuningRun& run, const Steps& steps,
                            const std::vector<std::string>& names,
                            const runs::TakeStep& take_step);

}  // namespace llm::fine_tune
