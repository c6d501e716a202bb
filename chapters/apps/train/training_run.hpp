// A training run: its data and hyperparameters, its folder, its evaluations and its end. For
// chapter 13 and ./learn train.
#pragma once

#include <limits>
#include <memory>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/13_training/trainer.hpp"
#include "common/files/folder_lock.hpp"
#include "common/output/plot.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::runs {

// Tokenizer, data, configuration and hyperparameters of a run.
struct TrainingTask {
    Tokenizer tokenizer;
    Dataset dataset;
    Config config = mini_llm_config();
    TrainingArguments args;
    bool steps_given = false;  // otherwise a resumed run takes max_steps from its checkpoint
    std::vector<Id> eos_token_ids = {};  // of documents
};

// The folder of the checkpoint, which --resume reads, and of the model, which load_model reads.
struct OutputFolder {
    std::string path;
    bool resume = false;
    DType dtype = DType::float32;
    std::size_t save_steps = 0;  // checkpoint after so many steps; 0: after about a minute
    std::shared_ptr<FolderLock> lock = {};  // held until the program ends
    std::string checkpoint_file() const { return path + "/run.safetensors"; }
    std::string log_file() const { return path + "/log.jsonl"; }
};

// Trains a tokenizer on the text, and splits the tokens into training and validation sets.
void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size);

// The batches of an evaluation during training.
constexpr std::size_t num_evaluation_batches = 20;

// The validation losses, for the loss curve, and a function that samples text from the model.
// Those before --resume come from the log.
struct EvaluationLog {
    Line validation{"validation", {}, {}};
    std::function<std::string(const Model&)> sample;
};

// The moving average over 20 steps, at no more than 400 points.
Line smooth(const std::string& label, const std::vector<Real>& losses);

// The folder of a run without --folder: build/models/NAME, then NAME_2, NAME_3 and so on, so
// that finished runs are kept. If the latest run was interrupted, or is to be resumed, its
// folder.
std::string default_folder(const std::string& name, bool resume);

// Creates and locks the folder. Throws FileError if there is no checkpoint to resume from, if a
// run would be overwritten, or if another run is writing to the folder. Sets the schedule and
// extra_steps of a resumed run.
void open_output_folder(OutputFolder& output, TrainingTask& task);

// The state of a new run, or that of the checkpoint to resume from.
TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const OutputFolder& output);

// Tells whether steps are left in a resumed run, and how those after its schedule are trained.
void explain_resumed_run(const TrainerState& state, const TrainingTask& task,
                         bool has_time_limit);

// Training stops after last_step, or after the first step that ends later than the deadline.
// With a target time, last_step is adjusted after each evaluation to the measured speed. Times
// are in seconds since the start of the program.
struct StopCondition {
    std::size_t last_step;
    std::size_t highest_last_step = std::numeric_limits<std::size_t>::max();
    bool sets_max_steps = false;  // max_steps of the run is adjusted, too
    double target = infinity, deadline = infinity;
    std::size_t num_reports = 6;  // remaining evaluations
    double seconds_per_report = 0;
};

// The last step for which the target time suffices, at this speed.
std::size_t plan_last_step(const StopCondition& stop, std::size_t global_step,
                           double seconds_per_step);

// Trains, evaluates up to six times, and saves a checkpoint at the start, after save_steps, at
// each evaluation and after Ctrl-C.
struct RunOutcome {
    double seconds_per_step;
    bool interrupted;
};
RunOutcome train_and_evaluate(TrainerState& state, TrainingTask& task,
                              const OutputFolder& output, EvaluationLog& log,
                              const StopCondition& stop);

// Sets max_steps, and warmup_steps to a tenth of it, but at most 100.
void set_max_steps(LRSchedule& schedule, std::size_t max_steps);

std::string minutes_and_seconds(double seconds);  // 75.3 as "1:15"
std::size_t tokens_per_step(const TrainingArguments& args);
std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step);

}  // namespace llm::runs
