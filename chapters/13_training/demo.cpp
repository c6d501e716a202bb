#include "chapters/13_training/demo.hpp"

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
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
    const double validation =
        evaluate(state.model, task.dataset.validation, task.args, num_evaluation_batches);
    log.validation.x.push_back(double(state.global_step));
    log.validation.y.push_back(validation);
    show_progress("");
    show("step " + to_text(state.global_step), "loss " + fixed(double(state.losses.back()), 3) +
                                                   ", validation loss " + fixed(validation, 3) +
                                                   ": " + log.sample(state.model));
    plot_now("loss", {loss_curve(state, log)});
}

void show_step(const TrainerState& state, std::size_t last_step, const TrainingArguments& args,
               const StepMetrics& metrics, double seconds_per_step) {
    const std::size_t left = last_step - state.global_step;
    show_progress(to_text(state.global_step) + "/" + to_text(last_step) + " " +
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

bool holds_model(const std::string& folder) { return is_file(folder + "/config.json"); }

struct Progress {
    std::size_t global_step, max_steps;
    bool is_finished() const { return global_step >= max_steps; }
};
Progress progress_of(const OutputFolder& output) {
    const std::string file = output.checkpoint_file();
    return {checkpoint_global_step(file), checkpoint_max_steps(file)};
}

[[noreturn]] void refuse_to_overwrite(const OutputFolder& output) {
    const auto progress = progress_of(output);
    const std::string done = to_text(progress.global_step);
    throw FileError(
        output.path + " holds a checkpoint: --resume continues its run (" +
        (progress.is_finished() ? "all " + done : done + " of " + to_text(progress.max_steps)) +
        " steps are done), and --folder names another folder for a new run");
}

// The arguments for training until last_step. If the run is continued after its last step, the
// learning rate stays constant.
TrainingArguments arguments_until(std::size_t last_step, const TrainingArguments& args) {
    TrainingArguments until = args;
    const Real constant = args.lr_schedule.min_learning_rate;
    if (last_step > args.lr_schedule.max_steps)
        until.lr_schedule = {constant, constant, 0, last_step};
    return until;
}

// Trains until the condition is met; evaluates and saves at intervals and after the last step.
class Run {
 public:
    Run(TrainerState& state, TrainingTask& task, const OutputFolder& output, EvaluationLog& log,
        const StopCondition& stop)
        : state_(state), task_(task), output_(output), log_(log), stop_(stop) {}

    void train_until_stop() {
        plan();
        start_ = elapsed_seconds();
        train(state_, args_, task_.dataset.train,
              [&](const StepMetrics& metrics, TrainerControl& control) {
                  end_step(metrics, control);
              });
    }
    double seconds() const { return seconds_; }  // spent in training steps

 private:
    // Sets the arguments and the step of the next evaluation.
    void plan() {
        LRSchedule& schedule = task_.args.lr_schedule;
        if (stop_.sets_max_steps) schedule.max_steps = stop_.last_step;
        args_ = arguments_until(stop_.last_step, task_.args);
        // A run that is resumed to its end is evaluated at the same steps as without a break.
        const bool is_whole =
            stop_.last_step == schedule.max_steps && stop_.target == double(infinity);
        const std::size_t begin = is_whole ? 0 : state_.global_step;
        const std::size_t interval =
            std::max<std::size_t>(1, (stop_.last_step - begin) / stop_.num_reports);
        next_report_ = begin + ((state_.global_step - begin) / interval + 1) * interval;
    }

    void end_step(const StepMetrics& metrics, TrainerControl& control) {
        seconds_ += elapsed_seconds() - start_;
        show_step(state_, stop_.last_step, args_, metrics, seconds_ / double(++num_steps_));
        control.should_training_stop =
            state_.global_step >= stop_.last_step || elapsed_seconds() > stop_.deadline;
        if (state_.global_step >= next_report_ || control.should_training_stop) {
            evaluate_and_report(state_, task_, log_);
            save(state_, task_, output_);
            if (!control.should_training_stop) plan_next_report();
        }
        start_ = elapsed_seconds();
    }

    void plan_next_report() {
        if (stop_.target < infinity) {
            stop_.num_reports = std::max<std::size_t>(2, stop_.num_reports) - 1;
            stop_.last_step =
                plan_last_step(stop_, state_.global_step, seconds_ / double(num_steps_));
        }
        plan();
    }

    TrainerState& state_;
    TrainingTask& task_;
    const OutputFolder& output_;
    EvaluationLog& log_;
    StopCondition stop_;
    TrainingArguments args_;
    std::size_t next_report_ = 0, num_steps_ = 0;
    double start_ = 0, seconds_ = 0;
};

// Tells how a run ended before its last step.
void report_end(const TrainerState& state, const TrainingTask& task, bool interrupted,
                bool is_saved) {
    const std::size_t max_steps = task.args.lr_schedule.max_steps;
    const std::string done =
        "after " + to_text(state.global_step) +
        (state.global_step > max_steps ? "" : " of " + to_text(max_steps)) +
        " steps. With --resume, the same command continues the run.";
    if (interrupted && !is_saved)
        say("Stopped. No step was completed, so there is nothing to save.");
    else if (interrupted)
        say("Stopped and saved " + done);
    else if (state.global_step < max_steps)
        say("The time is over. The run is saved " + done);
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

std::string default_folder(const std::string& name, bool resume) {
    OutputFolder free{model_folder(name)}, latest = free;
    for (std::size_t number = 2; holds_model(free.path); ++number)
        latest = std::exchange(free, {model_folder(name + "_" + to_text(number))});
    const bool is_interrupted =
        is_file(latest.checkpoint_file()) && !progress_of(latest).is_finished();
    return resume || is_interrupted ? latest.path : free.path;
}

void check_output_folder(const OutputFolder& output, TrainingTask& task) {
    const std::string file = output.checkpoint_file();
    if (output.resume) {
        if (!is_file(file))
            throw FileError(output.path + " holds no checkpoint to resume from");
        LRSchedule& schedule = task.args.lr_schedule;
        if (!task.steps_given) schedule.max_steps = checkpoint_max_steps(file);
        schedule.warmup_steps = checkpoint_warmup_steps(file);
    } else if (is_file(file)) {
        refuse_to_overwrite(output);
    } else if (holds_model(output.path)) {
        throw FileError(output.path + " holds a model; --folder names another folder");
    }
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

RunOutcome train_and_evaluate(TrainerState& state, TrainingTask& task,
                              const OutputFolder& output, EvaluationLog& log,
                              const StopCondition& stop) {
    const InterruptHandler interrupt_handler;
    const std::size_t first = state.global_step;
    Run run(state, task, output, log, stop);
    try {
        if (first < stop.last_step) run.train_until_stop();
        if (log.validation.x.empty()) {  // a resumed run had no steps left
            evaluate_and_report(state, task, log);
            save(state, task, output);
        }
    } catch (const Interrupted&) {
        if (state.global_step > first) save(state, task, output);
    }
    show_progress("");
    const bool interrupted = InterruptHandler::interrupted();
    report_end(state, task, interrupted, state.global_step > first);
    if (!log.validation.x.empty()) plot("loss", {loss_curve(state, log)});
    const std::size_t num_steps = std::max<std::size_t>(1, state.global_step - first);
    return {run.seconds() / double(num_steps), interrupted};
}

std::size_t plan_last_step(const StopCondition& stop, std::size_t global_step,
                           double seconds_per_step) {
    const double seconds =
        stop.target - elapsed_seconds() - double(stop.num_reports) * stop.seconds_per_report;
    const double num_steps = std::max(1.0, seconds / seconds_per_step);
    return std::min(global_step + std::size_t(num_steps), stop.highest_last_step);
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
