// Chapter 13: the functions of its program.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/13_training/trainer.hpp"
#include "common/output/plot.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// Tokenizer, data, configuration and hyperparameters of a run.
struct TrainingTask {
    Tokenizer tokenizer;
    Dataset dataset;
    Config config = mini_llm_config();
    TrainingArguments args;
};

// The folder of the checkpoint, which --resume reads, and of the model, which load_model reads.
struct OutputFolder {
    std::string path;
    bool resume = false;
    bool overwrite = false;  // an existing checkpoint may be replaced
    DType dtype = DType::float32;
    std::string checkpoint_file() const { return path + "/run.safetensors"; }
};

// Trains a tokenizer on the text, and splits the tokens into training and validation parts.
void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size);

// The validation losses, for the loss curve, and a function that samples text from the model.
struct EvaluationLog {
    Line validation{"validation", {}, {}};
    std::function<std::string(const Model&)> sample;
};

// The moving average over 20 steps, at no more than 400 points.
Line smooth(const std::string& label, const std::vector<Real>& losses);

// Throws FileError if there is no checkpoint to resume from, or if a file would be overwritten.
void check_output_folder(const OutputFolder& output);

// The state of a new run, or that of the checkpoint to resume from.
TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const OutputFolder& output);

// Trains, evaluates six times, and saves a checkpoint at each evaluation and after Ctrl-C.
struct RunOutcome {
    double seconds_per_step;
    bool interrupted;
};
RunOutcome train_and_evaluate(TrainerState& state, const TrainingTask& task,
                              const OutputFolder& output, EvaluationLog& log);

// Shows the bits per character of n-gram models and of this model on the validation part.
void compare_with_ngrams(const TrainingTask& task, const Model& model);

// Sets max_steps, and warmup_steps to a tenth of it, but at most 100.
void set_max_steps(LRSchedule& schedule, std::size_t max_steps);

std::string minutes_and_seconds(double seconds);  // 75.3 as "1:15"
std::size_t tokens_per_step(const TrainingArguments& args);
std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step);

// Trains a model on the first names of assets/.
void names_demo(TrainingTask task, OutputFolder output, Generator& generator);
std::vector<std::string> load_names(TrainingTask& task, Generator& generator);

// Trains a model on a text for the given minutes, or for max_steps steps if minutes is 0.
void text_demo(TrainingTask task, OutputFolder output, const std::string& file,
               std::size_t vocab_size, double minutes, Generator& generator);

// Trains small models, each with one change, and compares their losses.
void ablations_demo(const TrainingTask& task);

}  // namespace llm
