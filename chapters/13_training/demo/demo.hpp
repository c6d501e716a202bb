// Chapter 13: the functions of its program.
#pragma once

#include <limits>

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
    bool steps_given = false;  // otherwise a resumed run takes max_steps from its checkpoint
    std::vector<Id> eos_token_ids = {};  // of documents
};

// The folder of the checkpoint, which --resume reads, and of the model, which load_model reads.
struct OutputFolder {
    std::string path;
    bool resume = false;
    DType dtype = DType::float32;
    std::size_t save_steps = 0;  // checkpoint after so many steps; 0: after about a minute
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

// Throws FileError if there is no checkpoint to resume from, or if a run would be overwritten.
// Sets the schedule and extra_steps of a resumed run.
void check_output_folder(const OutputFolder& output, TrainingTask& task);

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

// The n-gram baseline: the validation tokens on which it and the model are compared, and the
// losses of the n-gram models, in nats per character.
struct NgramBaseline {
    std::vector<Id> tokens;
    std::vector<double> losses;
};
// With a time limit in seconds, the n-grams are counted in a part of the training text, if
// counting all of them would take longer.
NgramBaseline ngram_baseline(const TrainingTask& task, std::vector<Id> validation_tokens,
                             double time_limit = infinity);

// Shows the bits per character of n-gram models and of this model.
void compare_with_ngrams(const TrainingTask& task, const Model& model,
                         const NgramBaseline& baseline);

// Sets max_steps, and warmup_steps to a tenth of it, but at most 100.
void set_max_steps(LRSchedule& schedule, std::size_t max_steps);

std::string minutes_and_seconds(double seconds);  // 75.3 as "1:15"
std::size_t tokens_per_step(const TrainingArguments& args);
std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step);

// Trains a model on the first names of assets/.
void names_demo(TrainingTask task, OutputFolder output, Generator& generator);
std::vector<std::string> load_names(TrainingTask& task, Generator& generator);

// Trains a model on a text or on documents: the files of a folder or of a list with commas, or
// the parts of a text between separators. The program ends after the given minutes; 0: after
// max_steps steps.
struct TextOptions {
    std::string file, document_separator;
    std::vector<std::string> special_tokens = {};  // of documents, after <|endoftext|>
    bool individual_digits = false;                // of the tokenizer of documents
    bool cross_documents = false;                  // attention crosses documents
    std::size_t vocab_size = 1024;
    double minutes = 0;

    bool has_documents() const;
};
void text_demo(TrainingTask task, OutputFolder output, const TextOptions& options,
               Generator& generator);

// The documents, or one text. Throws FileError if a file cannot be read.
std::vector<std::string> read_documents(const TextOptions& options);

// Trains a byte-level tokenizer on the documents, packs them, and splits them into training and
// validation sets.
void tokenize_documents(TrainingTask& task, const std::vector<std::string>& documents,
                        const TextOptions& options);

// Writes generation_config.json, so that generation begins and stops with the end-of-text
// token.
void write_generation_config(const TrainingTask& task, const OutputFolder& output);

// Shows document ids, position ids and the mask of a few tokens.
void packed_documents(const TrainingTask& task);

// Shows the validation loss of the model within documents and across them.
void compare_masks(const TrainingTask& task, const Model& model);

// Trains small models, each with one change, and compares their losses.
void ablations_demo(const TrainingTask& task);

// Compares learning rates for three widths, with and without muP.
void mup_demo(const TrainingTask& task);

// Fits a scaling law to the losses of six models, and predicts that of a seventh.
void scaling_law_demo(TrainingTask task, const std::string& text);

}  // namespace llm
