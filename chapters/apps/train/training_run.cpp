#include "chapters/apps/train/training_run.hpp"

#include <algorithm>

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/13_training/training_log.hpp"
#include "chapters/apps/train/save_schedule.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/timer.hpp"

namespace llm::runs {
namespace {

LinePlot loss_curve(const TrainerState& state, const EvaluationLog& log) {
    return {
        "Loss", "step", "nats per token", {smooth("training", state.losses), log.validation}};
}

// Returns the validation loss. The speed is empty if nothing was trained.
double evaluate_and_report(const TrainerState& state, const TrainingTask& task,
                           EvaluationLog& log, const std::string& speed) {
    const double validation =
        evaluate_loss(state.model, task.dataset.validation, task.args, num_evaluation_batches);
    log.validation.x.push_back(double(state.global_step));
    log.validation.y.push_back(validation);
    show_progress("");
    show("step " + to_text(state.global_step), "loss " + fixed(double(state.losses.back()), 3) +
                                                   ", validation loss " + fixed(validation, 3) +
                                                   (speed.empty() ? "" : ", " + speed) +
                                                   "\n    " + log.sample(state.model));
    plot_now("loss", {loss_curve(state, log)});
    return validation;
}

// For example "12,345 tokens/s, 1:15 left".
std::string speed_and_time_left(const TrainingArguments& args, std::size_t steps_left,
                                double seconds_per_step) {
    return tokens_per_second(args, seconds_per_step) + "/s, " +
           minutes_and_seconds(double(steps_left) * seconds_per_step) + " left";
}

void show_step(const TrainerState& state, std::size_t last_step, const StepMetrics& metrics,
               const std::string& speed) {
    show_progress(to_text(state.global_step) + "/" + to_text(last_step) + " " +
                  sparkline(state.losses, 7) + " loss " + fixed(metrics.loss, 2) + " lr " +
                  fixed(double(metrics.learning_rate), 4) + " grad_norm " +
                  fixed(metrics.grad_norm, 2) + " " + speed);
}

void save(TrainerState& state, const TrainingTask& task, const OutputFolder& output) {
    save_checkpoint(state, task.args, task.dataset.train, output.checkpoint_file());
    models::export_model(state.model, output.path, output.dtype);
}

// Trains until the condition is met; evaluates and saves at intervals and after the last step.
class Run {
 public:
    Run(TrainerState& state, TrainingTask& task, const OutputFolder& output, EvaluationLog& log,
        const StopCondition& stop)
        : state_(state),
          task_(task),
          output_(output),
          log_(log),
          stop_(stop),
          log_file_(output.log_file(), state.global_step) {
        for (const auto& [step, loss] : log_file_.evaluations()) {
            log_.validation.x.push_back(double(step));
            log_.validation.y.push_back(loss);
        }
    }

    void train_until_stop() {
        plan();
        if (state_.global_step == 0) save_checkpoint_only();
        if (missed_report_) report("");
        start_ = saves_.saved_at = elapsed_seconds();
        train(state_, args_, task_.dataset.train,
              [&](const StepMetrics& metrics, TrainerControl& control) {
                  end_step(metrics, control);
              });
    }
    double seconds() const { return seconds_; }  // spent in training steps

    // Evaluates, and saves log, checkpoint and model.
    void report(const std::string& speed) {
        const double loss = evaluate_and_report(state_, task_, log_, speed);
        if (!is_logged()) log_file_.append_evaluation(state_.global_step, loss);
        save(state_, task_, output_);
        saves_.saved_at = elapsed_seconds();
    }

 private:
    // Whether the log has an evaluation of this step.
    bool is_logged() const {
        const auto& evaluations = log_file_.evaluations();
        return !evaluations.empty() && evaluations.back().step == state_.global_step;
    }

    // Sets the arguments and the step of the next evaluation.
    void plan() {
        LRSchedule& schedule = task_.args.lr_schedule;
        if (stop_.sets_max_steps) schedule.max_steps = stop_.last_step;
        args_ = task_.args;
        if (stop_.last_step > schedule.max_steps)
            args_.extra_steps = stop_.last_step - schedule.max_steps;
        // A run that is resumed to its end is evaluated at the same steps as without a break.
        const bool is_whole =
            stop_.last_step == task_.args.num_steps() && stop_.target == double(infinity);
        const std::size_t begin = is_whole ? 0 : state_.global_step;
        const std::size_t interval =
            std::max<std::size_t>(1, (stop_.last_step - begin) / stop_.num_reports);
        next_report_ = begin + ((state_.global_step - begin) / interval + 1) * interval;
        // Ctrl-C can end a run between a step and its evaluation.
        missed_report_ = is_whole && state_.global_step > 0 &&
                         state_.global_step % interval == 0 && !is_logged();
    }

    void end_step(const StepMetrics& metrics, TrainerControl& control) {
        const double seconds = elapsed_seconds() - start_;
        seconds_ += seconds;
        const std::size_t steps_left = stop_.last_step - state_.global_step;
        const std::string speed =
            speed_and_time_left(args_, steps_left, seconds_ / double(++num_steps_));
        show_step(state_, stop_.last_step, metrics, speed);
        log_file_.append_step(state_.global_step, metrics,
                              state_.global_step * tokens_per_step(args_),
                              log_file_.seconds() + seconds);
        control.should_training_stop =
            state_.global_step >= stop_.last_step || elapsed_seconds() > stop_.deadline;
        if (state_.global_step >= next_report_ || control.should_training_stop) {
            report(speed);
            if (!control.should_training_stop) plan_next_report();
        } else if (saves_.is_due(state_.global_step)) {
            save_checkpoint_only();
        }
        start_ = elapsed_seconds();
    }

    void save_checkpoint_only() {
        saves_.save([&] {
            save_checkpoint(state_, task_.args, task_.dataset.train, output_.checkpoint_file());
        });
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
    TrainingLog log_file_;
    TrainingArguments args_;
    std::size_t next_report_ = 0, num_steps_ = 0;
    bool missed_report_ = false;
    double start_ = 0, seconds_ = 0;
    SaveSchedule saves_{output_.save_steps};
};

// Tells how a run ended before its last step.
void report_end(const TrainerState& state, const TrainingTask& task, bool interrupted,
                bool is_saved) {
    const std::size_t num_steps = task.args.num_steps();
    const std::string done =
        "after " + to_text(state.global_step) +
        (state.global_step > num_steps ? "" : " of " + to_text(num_steps)) +
        " steps. With --resume, the same command continues the run.";
    if (interrupted && !is_saved)
        say("Stopped. No step was completed, so there is nothing to save.");
    else if (interrupted)
        say("Stopped and saved " + done);
    else if (state.global_step < num_steps)
        say("The time is over. The run is saved " + done);
}

}  // namespace

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

RunOutcome train_and_evaluate(TrainerState& state, TrainingTask& task,
                              const OutputFolder& output, EvaluationLog& log,
                              const StopCondition& stop) {
    const InterruptHandler interrupt_handler;
    const std::size_t first = state.global_step;
    Run run(state, task, output, log, stop);
    try {
        if (first < stop.last_step) run.train_until_stop();
        if (state.global_step == first) run.report("");  // a resumed run had no steps left
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

}  // namespace llm::runs
