// The training of each method.
#pragma once

#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/apps/fine_tune/fine_tuning_run.hpp"

namespace llm::fine_tune {

// The questions of the conversations of a task; empty: of all. Throws FileError, also if there
// are none.
std::vector<AskedQuestion> read_questions(const std::string& file, const std::string& task);

// Each reads its data, calls start, trains until the last step and draws a figure, or throws
// Interrupted between two steps; the tuner then has the result of the last complete one.
using Start = std::function<void()>;
void train(FineTuningRun& run, const Sft& method, const Start& start);
void train(FineTuningRun& run, const Dpo& method, const Start& start);
void train(FineTuningRun& run, const Grpo& method, const Start& start);

// Asks steps.count batches of questions, or throws Interrupted. Appends the preferences.
void sample(FineTuningRun& run, const Sample& method,
            const std::vector<AskedQuestion>& questions, std::vector<Preference>& preferences);

}  // namespace llm::fine_tune
