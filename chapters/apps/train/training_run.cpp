#include "chapters/apps/train/training_run.hpp"

#include "chapters/13_training/training_log.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::runs {
namespace {

constexpr std::size_t num_reports = 6;

// The state of a run, and what it does at each step, report and checkpoint.
class TrainingRun {
 public:
    TrainingRun(TrainerState& state, TrainingTask& task, const RunFolder& folder,
                const std::function<std::string(const Model&)>& sample,
                const std::optional<Deadline>& deadline, TrainingStrategy& strategy)
        : strategy_(strategy),
          state_(state),
          task_(task),
          folder_(folder),
          sample_(sample),
          has_deadline_(deadline),
          is_new_(state.global_step == 0),
          run_(length_of_run(deadline)) {
        if (strategy.is_main()) open_log();
        run_.save_steps = folder.save_steps;
        run_.report = [this] { report(); };
        run_.write_checkpoint = [this] {
            strategy_.save(state_, task_.args, task_.dataset.train, folder_.checkpoint_file());
        };
    }

    // Throws Interrupted after Ctrl-C.
    void train_to_end() {
        plan();
        run_.train([&] {
            if (run_.is_over() || has_missed_report()) run_.report_now();
            run_steps(
                state_, args_, [&] { return take_step(); },
                [&](const StepMetrics& metrics, TrainerControl& control) {
                    end_step(metrics);
                    control.should_training_stop = run_.is_over();
                });
        });
    }
    double seconds_per_step() const { return run_.seconds_per_step(); }
    LinePlot loss_curve() const {
        return {
            "Loss", "step", "nats per token", {smooth("training", state_.losses), validation_}};
    }

 private:
    // All ranks read the clock of the main one, so that they end, report and save together.
    RunLength length_of_run(std::optional<Deadline> deadline) const {
        const auto of_main = [this](const std::function<double()>& clock) {
            return [this, clock] { return strategy_.from_main(clock()); };
        };
        if (deadline) deadline->clock = of_main(deadline->clock);
        return {state_.global_step, task_.args.num_steps(), num_reports, deadline,
                of_main(elapsed_seconds)};
    }

    void open_log() {
        log_.emplace(folder_.path + "/log.jsonl", state_.global_step);
        logged_seconds_ = log_->seconds();
        for (const auto& [step, loss] : log_->evaluations()) add_evaluation(step, loss);
        if (log_->last_step() < state_.global_step)
            note(folder_.path + "/log.jsonl ends at step " + to_text(log_->last_step()) +
                 ", but " + to_text(state_.global_step) +
                 " steps are completed: lines are missing");
    }

    StepMetrics take_step() {
        if (strategy_.interrupted()) throw Interrupted();
        return strategy_.step(state_, args_, task_.dataset.train);
    }

    // Sets the arguments of the next step. The schedule of a new run ends with the run.
    void plan() {
        LRSchedule& schedule = task_.args.lr_schedule;
        if (is_new_ && has_deadline_) set_max_steps(schedule, run_.last_step());
        args_ = task_.args;
        if (run_.last_step() > schedule.max_steps)
            args_.extra_steps = run_.last_step() - schedule.max_steps;
    }

    void end_step(const StepMetrics& metrics) {
        run_.end_step();
        plan();
        show_progress(to_text(state_.global_step) + "/" + to_text(run_.last_step()) + " " +
                      sparkline(state_.losses, 7) + " loss " + fixed(metrics.loss, 2) + " lr " +
                      fixed(double(metrics.learning_rate), 4) + " grad_norm " +
                      fixed(metrics.grad_norm, 2) + " " + speed());
        if (log_)
            log_->append_step(state_.global_step, metrics,
                              state_.global_step * tokens_per_step(args_),
                              logged_seconds_ + run_.seconds());
        run_.report_and_save();
    }

    // Evaluates, and exports the model.
    void report() {
        strategy_.gather_model(state_);
        const double loss = strategy_.evaluate(state_.model, task_.dataset.validation,
                                               task_.args, num_evaluation_batches);
        if (!log_) return;
        add_evaluation(state_.global_step, loss);
        show_progress("");
        show("step " + to_text(state_.global_step),
             "loss " + fixed(double(state_.losses.back()), 3) + ", validation loss " +
                 fixed(loss, 3) +
                 (run_.num_steps_taken() > 0 ? ", " + speed(speed_per_rank()) : "") + "\n    " +
                 sample_(state_.model));
        plot_now("loss", {loss_curve()});
        if (!is_logged()) log_->append_evaluation(state_.global_step, loss);
        models::export_model(state_.model, folder_.path, folder_.dtype);
    }

    void add_evaluation(std::size_t step, double loss) {
        validation_.x.push_back(double(step));
        validation_.y.push_back(loss);
    }

    // Ctrl-C can end a run between a step and its evaluation.
    bool has_missed_report() {
        const bool has_missed =
            log_ && !has_deadline_ && !is_new_ && !is_logged() &&
            is_report_step(state_.global_step, run_.last_step(), num_reports);
        return strategy_.from_main(has_missed) > 0;
    }

    bool is_logged() const {
        const auto& evaluations = log_->evaluations();
        return !evaluations.empty() && evaluations.back().step == state_.global_step;
    }

    // For example "12,345 tokens/s, 1:15 left".
    std::string speed(const std::string& per_rank = "") const {
        return tokens_per_second(args_, run_.seconds_per_step()) + "/s" + per_rank + ", " +
               minutes_and_seconds(run_.seconds_left()) + " left";
    }
    std::string speed_per_rank() const {
        const double num_ranks = double(strategy_.num_ranks());
        if (num_ranks < 2) return "";
        return " (" + tokens_per_second(args_, num_ranks * run_.seconds_per_step()) +
               "/s per rank)";
    }

    TrainingStrategy& strategy_;
    TrainerState& state_;
    TrainingTask& task_;
    const RunFolder& folder_;
    const std::function<std::string(const Model&)>& sample_;
    const bool has_deadline_, is_new_;
    ResumableRun run_;
    TrainingArguments args_;
    std::optional<TrainingLog> log_;  // of the main rank
    double logged_seconds_ = 0;
    Line validation_{"validation", {}, {}};
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

RunOutcome train_and_evaluate(TrainerState& state, TrainingTask& task, const RunFolder& folder,
                              const std::function<std::string(const Model&)>& sample,
                              const std::optional<Deadline>& deadline,
                              const std::shared_ptr<TrainingStrategy>& strategy) {
    const InterruptHandler interrupt_handler(strategy->interrupt_mode());
    strategy->start(state, task.args);
    const std::size_t first_step = state.global_step;
    TrainingRun run(state, task, folder, sample, deadline, *strategy);
    try {
        run.train_to_end();
    } catch (const Interrupted&) {
    }
    const bool interrupted = strategy->interrupted();
    const bool is_saved = state.global_step > first_step;
    if (!strategy->is_main()) return {run.seconds_per_step(), interrupted};
    if (interrupted && is_saved) models::export_model(state.model, folder.path, folder.dtype);
    report_end(state, task, interrupted, is_saved);
    if (!state.losses.empty()) plot("loss", {run.loss_curve()});
    return {run.seconds_per_step(), interrupted};
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

std::string minutes_and_seconds(double seconds) {
    const auto whole = static_cast<std::size_t>(seconds);
    return to_text(whole / 60) + (whole % 60 < 10 ? ":0" : ":") + to_text(whole % 60);
}

std::string tokens_per_second(const TrainingArguments& args, double seconds_per_step) {
    const double tokens = double(tokens_per_step(args));
    return with_commas(static_cast<std::size_t>(tokens / seconds_per_step)) + " tokens";
}

}  // namespace llm::runs
