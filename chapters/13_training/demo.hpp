// Chapter 13: what its program shows of a run, of a text and of ablations.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/13_training/trainer.hpp"
#include "common/output/plot.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// What is trained, on which data, and how.
struct TrainingTask {
    Tokenizer tokenizer;
    Dataset dataset;
    Config config = mini_llm_config();
    TrainingArguments args;
};

// Where the checkpoint and the model are written: a folder that load_model and --resume read.
struct OutputFolder {
    std::string path;
    bool resume = false;
    bool overwrite = false;  // an existing checkpoint may be replaced
    DType dtype = DType::float32;
    std::string checkpoint_file() const { return path + "/run.safetensors"; }
};

// Trains a tokenizer on the text, and splits the text into the parts of a dataset.
void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size);

// The validation losses so far, for the loss curve; and what to sample at each evaluation.
struct EvaluationLog {
    Line validation{"validation", {}, {}};
    std::function<std::string(const Model&)> sample;
};

// The mean of 20 steps each, at most 400 points.
Line smooth(const std::string& label, const std::vector<Real>& losses);

// Throws FileError if there is no checkpoint to resume from, or one that must not be replaced.
void check_output_folder(const OutputFolder& output);

// The state of a new run, or of the one that is resumed.
TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const OutputFolder& output);

// Trains, evaluates six times, and saves a checkpoint after each evaluation; after Ctrl-C, too.
struct RunOutcome {
    double seconds_per_step;
    bool interrupted;
};
RunOutcome train_and_evaluate(TrainerState& state, const TrainingTask& task,
                              const OutputFolder& output, EvaluationLog& log);

// Bits per character on the validation part, of n-gram models and of this model.
void compare_with_ngrams(const TrainingTask& task, const Model& model);

// Sets max_steps, and warm-up to a tenth of it, at most 100 steps.
void set_max_steps(LRSchedule& schedule, std::size_t max_steps);

std::string minutes_and_seconds(double seconds);  // 75.3 as "1:15"
std::size_t tokens_per_step(const TrainingArguments& args);
std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step);

// Trains a model on the first names of assets/.
void names_demo(TrainingTask task, OutputFolder output, Generator& generator);
std::vector<std::string> load_names(TrainingTask& task, Generator& generator);

// Trains a model on a text for so many minutes, or if that is 0 for max_steps.
void text_demo(TrainingTask task, OutputFolder output, const std::string& file,
               std::size_t vocab_size, double minutes, Generator& generator);

// Trains small models that differ in one choice.
void ablations_demo(const TrainingTask& task);

}  // namespace llm
