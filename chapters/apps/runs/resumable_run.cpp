#include "chapters/apps/runs/resumable_run.hpp"

#include <algorithm>

#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::runs {

bool is_report_step(std::size_t step, std::size_t num_steps, std::size_t num_reports) {
    return step % std::max<std::size_t>(1, num_steps / num_reports) == 0 || step == num_steps;
}

ResumableRun::ResumableRun(const RunLength& length)
    : length_(length),
      global_step_(length.global_step),
      first_step_(length.global_step),
      last_step_(length.num_steps) {
    if (length.deadline) last_step_ = std::max(last_step_, first_step_ + 1);
}

void ResumableRun::train(const std::function<void()>& take_steps) {
    start_ = reported_at_ = saved_at_ = now();
    try {
        if (global_step_ == 0) save();
        step_start_ = now();
        take_steps();
    } catch (const Interrupted&) {
        show_progress("");
        if (num_steps_taken() > 0) write_checkpoint();
        throw;
    }
}

void ResumableRun::end_step() {
    seconds_ += now() - step_start_;
    ++global_step_;
    if (length_.deadline) estimate_last_step();
}

void ResumableRun::report_and_save() {
    if (is_report_due())
        report_now();
    else if (is_save_due())
        save();
    step_start_ = now();
}

void ResumableRun::report_now() {
    reported_at_ = now();
    ++num_reports_made_;
    report();
    save();
    seconds_per_report_ = now() - reported_at_;
}

void ResumableRun::save() {
    const double start = now();
    write_checkpoint();
    saved_at_ = now();
    seconds_per_save_ = saved_at_ - start;
}

// From the first step of this program to the last one before the deadline.
double ResumableRun::training_seconds() const {
    const auto& [seconds, num_reports_after, clock] = *length_.deadline;
    return seconds - num_reports_after * seconds_per_report_ - start_;
}

void ResumableRun::estimate_last_step() {
    const double elapsed = now() - start_, total = training_seconds();
    last_step_ = global_step_;
    if (elapsed >= total) return;
    const double num_steps = double(num_steps_taken()) * total / elapsed;
    last_step_ = std::max(global_step_ + 1, first_step_ + static_cast<std::size_t>(num_steps));
    const bool was_interrupted = first_step_ > 0 && first_step_ < length_.num_steps;
    if (was_interrupted) last_step_ = std::min(last_step_, length_.num_steps);
}

bool ResumableRun::is_report_due() const {
    if (is_over()) return true;
    if (!length_.deadline) return is_report_step(global_step_, last_step_, length_.num_reports);
    if (num_reports_made_ + 1 >= length_.num_reports)
        return false;  // the last one ends the run
    const double seconds_left = start_ + training_seconds() - reported_at_;
    const double interval = seconds_left / double(length_.num_reports - num_reports_made_);
    // At most a quarter of the time is for reports.
    return now() - reported_at_ >= std::max(interval, 4 * seconds_per_report_);
}

// After about a minute, for at most a twentieth of the time.
bool ResumableRun::is_save_due() const {
    if (save_steps > 0) return global_step_ % save_steps == 0;
    return now() - saved_at_ > std::max(60.0, 20 * seconds_per_save_);
}

double ResumableRun::seconds_per_step() const {
    return seconds_ / double(std::max<std::size_t>(1, num_steps_taken()));
}

double ResumableRun::seconds_left() const {
    return seconds_per_step() * double(last_step_ - global_step_);
}

}  // namespace llm::runs
