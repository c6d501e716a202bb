// Chapter 14: the training runs of model.cpp.
#pragma once

#include <vector>

#include "chapters/13_training/lr_schedule.hpp"
#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/14_fine_tuning/demo/demo.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "common/output/plot.hpp"

namespace llm {

// What all runs have in common.
struct ModelRun {
    const ModelArguments& arguments;
    ChatEncoder encoder;
    FineTuner tuner;
    std::vector<Model> gradients;
    Generator generator;
    std::size_t steps, batch_size;
    LRSchedule schedule;
};

// Each trains until the last step, or throws Interrupted between two steps; the tuner then has
// the result of the last complete one. Each draws a figure.
void run_sft(ModelRun& run, const std::vector<Conversation>& conversations);
void run_dpo(ModelRun& run, const std::vector<Preference>& preferences);
void run_grpo(ModelRun& run, const std::vector<AskedQuestion>& questions);

// Asks questions at temperature 1, until steps * batch_size have been asked. A preference is
// the correct answer (chosen) and a wrong one of the model (rejected).
std::vector<Preference> sample_preferences(ModelRun& run,
                                           const std::vector<AskedQuestion>& questions);

}  // namespace llm
