// The methods: SFT, DPO, GRPO, and sampling preferences.
#pragma once

#include <vector>

#include "chapters/13_training/lr_schedule.hpp"
#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/apps/fine_tune/fine_tune.hpp"

namespace llm::fine_tune {

// What all runs have in common.
struct FineTuningRun {
    const FineTuningArguments& arguments;
    std::vector<Setting> settings;  // of checkpoints
    ChatEncoder encoder;
    FineTuner tuner;
    std::vector<Model> gradients;
    Generator generator;
    std::size_t steps, batch_size;
    LRSchedule schedule;
};

// Each trains until the last step, or throws Interrupted between two steps; the tuner then has
// the result of the last complete one. Each draws a figure.
void run_sft(FineTuningRun& run, const std::vector<Conversation>& conversations);
void run_dpo(FineTuningRun& run, const std::vector<Preference>& preferences);
void run_grpo(FineTuningRun& run, const std::vector<AskedQuestion>& questions);

// Asks questions at temperature 1, until steps * batch_size have been asked, or throws
// Interrupted. Appends preferences: the correct answer (chosen) and a wrong one of the model
// (rejected).
void sample_preferences(FineTuningRun& run, const std::vector<AskedQuestion>& questions,
                        std::vector<Preference>& preferences);

}  // namespace llm::fine_tune
