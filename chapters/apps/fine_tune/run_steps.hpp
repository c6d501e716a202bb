// The steps of a run, its checkpoints, and resuming it.
#pragma once

#include <functional>

#include "chapters/apps/fine_tune/methods.hpp"
#include "common/output/plot.hpp"

namespace llm::fine_tune {

std::string checkpoint_file(const FineTuningArguments& arguments);

// The settings that identify a run: a checkpoint is only resumed with equal ones.
std::vector<Setting> settings_of(const FineTuningArguments& arguments, std::uint32_t seed,
                                 const Model& model);

// Takes one step, and returns what is reported of it. It draws random numbers from
// run.generator only.
using TakeStep = std::function<std::vector<double>(std::size_t step)>;

// Takes all steps, or with --resume the remaining ones. A checkpoint is written
// at the start, about every minute, and before Interrupted is thrown; it has the state after
// the last complete step. A resumed run ends with the same bytes as one without a break.
// Returns the averages of each name, for a figure. Throws FileError, also if the checkpoint
// belongs to another run.
std::vector<Line> run_steps(FineTuningRun& run, const std::vector<std::string>& names,
                            const TakeStep& take_step);

}  // namespace llm::fine_tune
