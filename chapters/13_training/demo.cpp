#include "chapters/13_training/demo.hpp"

#include <cmath>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
#include "chapters/13_training/ablations/ngram.hpp"
#include "chapters/13_training/run_checkpoint.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

LinePlot loss_curve(const TrainerState& state, const EvaluationLog& log) {
    return {
        "Loss", "step", "nats per token", {smooth("training", state.losses), log.validation}};
}

void evaluate_and_report(const TrainerState& state, const TrainingTask& task,
                         EvaluationLog& log) {
    const double validation = evaluate(state.model, task.dataset.validation, task.args, 20);
    log.validation.x.push_back(double(state.global_step));
    log.validation.y.push_back(validation);
    show_progress("");
    show("step " + to_text(state.global_step), "loss " + fixed(double(state.losses.back()), 3) +
                                                   ", validation loss " + fixed(validation, 3) +
                                                   ": " + log.sample(state.model));
    plot_now("loss", {loss_curve(state, log)});
}

void show_step(const TrainerState& state, const TrainingArguments& args,
               const StepMetrics& metrics, double seconds_per_step) {
    const std::size_t left = args.lr_schedule.max_steps - state.global_step;
    show_progress(to_text(state.global_step) + "/" + to_text(args.lr_schedule.max_steps) + " " +
                  sparkline(state.losses, 7) + " loss " + fixed(metrics.loss, 2) + " lr " +
                  fixed(double(metrics.learning_rate), 4) + " grad_norm " +
                  fixed(metrics.grad_norm, 2) + " " +
                  tokens_per_second(args, seconds_per_step) + "/s " +
                  minutes_and_seconds(double(left) * seconds_per_step) + " left");
}

void save(TrainerState& state, const TrainingTask& task, const OutputFolder& output) {
    save_checkpoint(state, task.args, task.dataset.train, output.checkpoint_file());
    export_model(state.model, output.path, output.dtype);
}

// Bits per character on the whole validation part.
double bits_per_character(const Model& model, const TrainingTask& task) {
    const std::vector<Id>& tokens = task.dataset.validation;
    const double loss = evaluate(model, tokens, task.args, tokens.size());
    const std::size_t num_characters = characters(task.tokenizer.decode(tokens)).size();
    return loss / std::log(2.0) * double(tokens.size()) / double(num_characters);
}

}  // namespace

void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size) {
    task.tokenizer = train_bpe(text, vocab_size);
    task.dataset = train_validation_split(task.tokenizer.encode(text), task.args.seq_len);
    task.config.vocab_size = task.tokenizer.vocab_size();
}

Line smooth(const std::string& label, const std::vector<Real>& losses) {
    Line line{label, {}, {}};
    for (std::size_t n = 20; n <= losses.size(); n += 1 + losses.size() / 400) {
        double sum = 0;
        for (std::size_t i = n - 20; i < n; ++i) sum += double(losses[i]);
        line.x.push_back(double(n));
        line.y.push_back(sum / 20);
    }
    return line;
}

void check_output_folder(const OutputFolder& output) {
    if (output.resume && !is_file(output.checkpoint_file()))
        throw FileError(output.path + " holds no checkpoint to resume from");
    if (output.resume || output.overwrite) return;
    if (is_file(output.checkpoint_file()))
        throw FileError(output.path +
                        " holds a checkpoint: --resume continues its run, and --folder names "
                        "another folder");
    if (is_file(output.path + "/config.json"))
        throw FileError(output.path + " holds a model; --folder names another folder");
}

TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const OutputFolder& output) {
    TrainerState state = init_trainer(model, task.args);
    if (output.resume)
        load_checkpoint(state, task.args, task.dataset.train, output.checkpoint_file());
    make_folder(output.path);
    save_tokenizer(task.tokenizer, output.path + "/tokenizer.json");
    return state;
}

RunOutcome train_and_evaluate(TrainerState& state, const TrainingTask& task,
                              const OutputFolder& output, EvaluationLog& log) {
    const std::size_t interval = std::max<std::size_t>(1, task.args.lr_schedule.max_steps / 6);
    const std::size_t first = state.global_step;
    if (first >= task.args.lr_schedule.max_steps)
        say("All " + to_text(first) +
            " steps of this run are done: there is nothing to train.");
    const InterruptHandler interrupt_handler;
    double seconds = 0, start = seconds_so_far();
    const auto evaluate_and_save = [&] {
        evaluate_and_report(state, task, log);
        save(state, task, output);
    };
    train(state, task.args, task.dataset.train,
          [&](const StepMetrics& metrics, TrainerControl& control) {
              seconds += seconds_so_far() - start;
              show_step(state, task.args, metrics, seconds / double(state.global_step - first));
              control.should_training_stop = InterruptHandler::interrupted();
              if (state.global_step % interval == 0 || control.should_training_stop)
                  evaluate_and_save();
              start = seconds_so_far();
          });

    // Evaluate after the last step, also if a resumed run had no steps left.
    const bool interrupted = InterruptHandler::interrupted();
    if (log.validation.x.empty() || (state.global_step % interval != 0 && !interrupted))
        evaluate_and_save();
    plot("loss", {loss_curve(state, log)});
    if (interrupted)
        say("Stopped and saved. The same command with --resume continues the run.");
    const std::size_t num_steps = std::max<std::size_t>(1, state.global_step - first);
    return {seconds / double(num_steps), interrupted};
}

void compare_with_ngrams(const TrainingTask& task, const Model& model) {
    const std::string text = task.tokenizer.decode(task.dataset.train);
    const Tokenizer character_tokenizer = train_bpe(text, 0);
    const Dataset dataset{
        character_tokenizer.encode(text),
        character_tokenizer.encode(task.tokenizer.decode(task.dataset.validation))};
    const std::vector<double> losses =
        ngram_losses(dataset, character_tokenizer.vocab_size(), 6, {1, 4, 16, 64});
    const std::vector<std::string> names = {"uniform", "unigram", "bigram", "trigram",
                                            "4-gram",  "5-gram",  "6-gram"};
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < names.size(); ++n)
        rows.push_back({names[n], fixed(losses[n] / std::log(2.0), 3)});
    rows.push_back({"this model", fixed(bits_per_character(model, task), 3)});
    show_table({"characters", "bits per character"}, rows);
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

}  // namespace llm
