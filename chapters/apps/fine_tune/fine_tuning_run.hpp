// The steps of fine-tuning, whatever the method: reports, checkpoints, and resuming.
#pragma once

#include <functional>

#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/apps/fine_tune/fine_tune.hpp"
#include "common/output/plot.hpp"

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

// Throws FileError if the checkpoint to resume from belongs to another run.
SafeTensors open_checkpoint(const FineTuningRun& run);

// Takes one step, and returns what is reported of it. It draws random numbers from
// run.generator only.
using TakeStep = std::function<std::vector<double>(Real learning_rate)>;

// Takes all steps, or with --resume the remaining ones, and prints about eight lines with the
// averages of each name, which it returns for a figure. Throws Interrupted between two steps,
// after it has saved the last complete one. A resumed run ends with the same bytes as one
// without a break.
std::vector<Line> run_steps(FineTuningRun& run, const Steps& steps,
                            const std::vector<std::string>& names, const TakeStep& take_step);

}  // namespace llm::fine_tune
