#include "chapters/apps/train/training_run.hpp"

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm::runs {
namespace {

bool holds_model(const std::string& folder) { return is_file(folder + "/config.json"); }
bool holds_run(const OutputFolder& output) {
    return is_file(output.checkpoint_file()) || holds_model(output.path);
}

struct Progress {
    std::size_t global_step, num_steps;
    bool is_finished() const { return global_step >= num_steps; }
};
Progress progress_of(const OutputFolder& output) {
    const std::string file = output.checkpoint_file();
    return {checkpoint_global_step(file),
            checkpoint_max_steps(file) + checkpoint_extra_steps(file)};
}

[[noreturn]] void reject_existing(const OutputFolder& output) {
    const auto progress = progress_of(output);
    const std::string done = to_text(progress.global_step);
    throw FileError(
        output.path + " holds a checkpoint: --resume continues its run (" +
        (progress.is_finished() ? "all " + done : done + " of " + to_text(progress.num_steps)) +
        " steps are done), and --folder names another folder for a new run");
}

// The schedule of a run stays as it was planned. With more --steps, the others are extra steps;
// with fewer, load_checkpoint will reject the checkpoint.
void resume_schedule(TrainingTask& task, const std::string& file) {
    LRSchedule& schedule = task.args.lr_schedule;
    const std::size_t planned = checkpoint_max_steps(file);
    task.args.extra_steps = checkpoint_extra_steps(file);
    if (task.steps_given && schedule.max_steps >= planned)
        task.args.extra_steps = schedule.max_steps - planned;
    if (!task.steps_given || schedule.max_steps >= planned) schedule.max_steps = planned;
    schedule.warmup_steps = checkpoint_warmup_steps(file);
}

}  // namespace

void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size) {
    task.tokenizer = train_bpe(text, vocab_size);
    task.dataset = train_validation_split(task.tokenizer.encode(text), task.args.seq_len);
    task.config.vocab_size = task.tokenizer.vocab_size();
}

std::string default_folder(const std::string& name, bool resume) {
    OutputFolder free{model_folder(name)}, latest = free;
    for (std::size_t number = 2; holds_run(free); ++number)
        latest = std::exchange(free, {model_folder(name + "_" + to_text(number))});
    const bool is_interrupted =
        is_file(latest.checkpoint_file()) && !progress_of(latest).is_finished();
    return resume || is_interrupted ? latest.path : free.path;
}

void open_output_folder(OutputFolder& output, TrainingTask& task) {
    const std::string file = output.checkpoint_file();
    if (output.resume && !is_file(file))
        throw FileError(output.path + " holds no checkpoint to resume from");
    output.lock = std::make_shared<FolderLock>(output.path);
    if (output.resume) {
        resume_schedule(task, file);
    } else if (is_file(file)) {
        reject_existing(output);
    } else if (holds_model(output.path)) {
        throw FileError(output.path + " holds a model; --folder names another folder");
    }
}

TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const OutputFolder& output) {
    TrainerState state = make_trainer_state(model, task.args);
    if (output.resume)
        load_checkpoint(state, task.args, task.dataset.train, output.checkpoint_file());
    models::save_tokenizer(task.tokenizer, output.path + "/tokenizer.json");
    return state;
}

void explain_resumed_run(const TrainerState& state, const TrainingTask& task,
                         bool has_time_limit) {
    const LRSchedule& schedule = task.args.lr_schedule;
    const std::size_t num_steps = task.args.num_steps();
    const bool is_finished = state.global_step >= num_steps;
    if (is_finished && !has_time_limit)
        say("All " + to_text(state.global_step) +
            " steps of this run are done, and nothing is trained. --resume --steps " +
            to_text(2 * state.global_step) + " continues it.");
    else if (is_finished || num_steps > schedule.max_steps)
        say("The schedule of this run ends at step " + to_text(schedule.max_steps) +
            ". Later steps have its last learning rate, " +
            brief(double(schedule.min_learning_rate)) + ".");
}

void set_max_steps(LRSchedule& schedule, std::size_t max_steps) {
    schedule.max_steps = max_steps;
    schedule.warmup_steps = std::min<std::size_t>(100, max_steps / 10);
}

std::string minutes_and_seconds(double seconds) {
    const auto whole = static_cast<std::size_t>(seconds);
    return to_text(whole / 60) + (whole % 60 < 10 ? ":0" : ":") + to_text(whole % 60);
}

std::size_t tokens_per_step(const TrainingArguments& args) {
    return args.gradient_accumulation_steps * args.batch_size * args.seq_len;
}

std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step) {
    const double tokens = double(tokens_per_step(args));
    return with_commas(static_cast<std::size_t>(tokens / seconds_per_step)) + " tokens";
}

}  // namespace llm::runs
