// The steps of a run, whatever it trains: reports, checkpoints, and resuming. For ./learn
// fine_tune and ./learn train --masked-lm.
#pragma once

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/apps/runs/resumable_run.hpp"
#include "chapters/apps/runs/run_folder.hpp"
#include "common/numbers/hash.hpp"
#include "common/output/plot.hpp"

namespace llm::runs {

// What a run changes, saves and restores. The optimizer and the generator must outlive it, and
// the parameters' values, too.
struct StepRun {
    RunFolder folder;
    std::vector<Setting> settings;      // a checkpoint is only resumed with equal ones; empty:
                                        // there are no checkpoints
    std::vector<Parameter> parameters;  // that are trained
    AdamW& optimizer;
    Generator& generator;
    std::function<void()> on_restore = {};  // the parameters have other values
    bool has_inner_steps = false;           // Interrupted may leave a step half done
    std::optional<Deadline> deadline = {};  // then the schedule of a new run ends with it
};

// Of the values, for settings.
template <class AnyParameter>
std::uint64_t checksum(const std::vector<AnyParameter>& parameters) {
    std::uint64_t hash = fnv1a("");
    for (const AnyParameter& parameter : parameters)
        hash = fnv1a(std::as_bytes(parameter.values), hash);
    return hash;
}

// Throws FileError if the checkpoint to resume from belongs to another run.
SafeTensors open_checkpoint(const RunFolder& folder, const std::vector<Setting>& settings);

// Throws FileError if the folder has a checkpoint, or a model or an adapter, and the run is not
// resumed.
void reject_existing_result(const RunFolder& folder);
void check_new(const std::string& file);  // the same for one file

// Takes one step, and returns what is reported of it. It draws random numbers from the run's
// generator only.
using TakeStep = std::function<std::vector<double>(Real learning_rate)>;

// Takes all steps, or with --resume the remaining ones, and prints about eight lines with the
// averages of each name, which it returns for a figure. `report`, if given, is called after
// each of these lines. Throws Interrupted between two steps, after it has saved the last
// complete one. A resumed run ends with the same bytes as one without a break.
std::vector<Line> run_steps(StepRun& run, LRSchedule schedule,
                            const std::vector<std::string>& names, const TakeStep& take_step,
                            const std::function<void()>& report = {});

// Trains, and saves the result at the end or after Ctrl-C; says how to continue, or removes the
// checkpoint. Returns whether all steps were taken.
bool train_and_save(const RunFolder& folder, const std::function<void()>& train,
                    const std::function<void()>& save);

}  // namespace llm::runs
