// A run that can be stopped and resumed: when it reports, writes checkpoints and ends. For
// chapter 13, ./learn train and ./learn fine_tune.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "common/system/timer.hpp"

namespace llm::runs {

// The time at which a program must end. Its last step is earlier: what follows takes as long as
// num_reports_after reports.
struct Deadline {
    double seconds;  // what the clock then says
    double num_reports_after = 1;
    std::function<double()> clock = elapsed_seconds;
};

struct RunLength {
    std::size_t global_step;  // completed so far
    std::size_t num_steps;    // of the whole run
    std::size_t num_reports;
    std::optional<Deadline> deadline = {};
    std::function<double()> clock = elapsed_seconds;  // without a deadline
};

// Whether a report follows this step. Reports are evenly spaced; the last one follows the last
// step.
bool is_report_step(std::size_t step, std::size_t num_steps, std::size_t num_reports);

// Without a deadline, a run ends after num_steps. With one, it ends at the deadline: a new run
// after any number of steps; an interrupted run after num_steps at the latest; a finished run
// is continued.
class ResumableRun {
 public:
    std::function<void()> report;            // at intervals, and after the last step
    std::function<void()> write_checkpoint;  // also after each report
    std::size_t save_steps = 0;              // steps between checkpoints, 0: about a minute

    explicit ResumableRun(const RunLength& length);

    // Calls take_steps once. It takes steps until is_over(), and calls end_step and
    // report_and_save after each. A new run writes a checkpoint before its first step. If
    // take_steps throws Interrupted after at least one step, whose state is complete, writes a
    // checkpoint and rethrows.
    void train(const std::function<void()>& take_steps);
    void end_step();         // counts and times the step
    void report_and_save();  // what is due of both
    void report_now();

    bool is_over() const { return global_step_ >= last_step_; }
    // With a deadline, estimated after each step from the share of the time that has passed.
    std::size_t last_step() const { return last_step_; }
    std::size_t num_steps_taken() const { return global_step_ - first_step_; }
    double seconds() const { return seconds_; }  // of steps, without reports and checkpoints
    double seconds_per_step() const;
    double seconds_left() const;

 private:
    double now() const {
        return length_.deadline ? length_.deadline->clock() : length_.clock();
    }
    double training_seconds() const;
    void estimate_last_step();
    bool is_report_due() const;
    bool is_save_due() const;
    void save();

    RunLength length_;
    std::size_t global_step_, first_step_, last_step_, num_reports_made_ = 0;
    double start_ = 0, step_start_ = 0, seconds_ = 0;
    double reported_at_ = 0, seconds_per_report_ = 0, saved_at_ = 0, seconds_per_save_ = 0;
};

}  // namespace llm::runs
