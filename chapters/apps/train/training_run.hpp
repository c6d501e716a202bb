// A training run of chapter 13 or of ./learn train, from its first step to its last.
#pragma once

#include "chapters/apps/runs/resumable_run.hpp"
#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_strategy.hpp"
#include "common/output/plot.hpp"

namespace llm::runs {

// The batches of an evaluation during training.
constexpr std::size_t num_evaluation_batches = 20;

// Trains, evaluates up to six times, and shows a text that sample(model) returns; then exports
// the model. Checkpoints are written at each evaluation, too, and after Ctrl-C. The schedule of
// a new run with a deadline ends with it: max_steps is estimated after each step.
struct RunOutcome {
    double seconds_per_step;  // 0 if no step was left
    bool interrupted;
};
RunOutcome train_and_evaluate(
    TrainerState& state, TrainingTask& task, const RunFolder& folder,
    const std::function<std::string(const Model&)>& sample,
    const std::optional<Deadline>& deadline = {},
    const std::shared_ptr<TrainingStrategy>& strategy = std::make_shared<TrainingStrategy>());

// The moving average over 20 steps, at no more than 400 points.
Line smooth(const std::string& label, const std::vector<Real>& losses);

std::string minutes_and_seconds(double seconds);  // 75.3 as "1:15"
std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step);

}  // namespace llm::runs
