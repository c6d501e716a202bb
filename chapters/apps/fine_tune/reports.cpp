#include "chapters/apps/fine_tune/reports.hpp"

#include <algorithm>

#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm::fine_tune {

Reports::Reports(std::size_t num_steps, std::vector<std::string> names)
    : num_steps_(num_steps),
      names_(std::move(names)),
      sums_(names_.size()),
      start_(elapsed_seconds()) {
    for (const std::string& name : names_) lines_.push_back({name, {}, {}});
}

// Counts a step. Returns whether a report is due.
bool Reports::add(const std::vector<double>& values) {
    ++step_;
    ++num_summed_;
    for (std::size_t i = 0; i < values.size(); ++i) {
        history_.push_back(static_cast<Real>(values[i]));
        sums_[i] += double(history_.back());  // as in a run that is resumed
    }
    const std::size_t interval = std::max<std::size_t>(1, num_steps_ / 8);
    return step_ % interval == 0 || step_ == num_steps_;
}

// Adds the averages since the last report to the figure and begins new ones. Returns, for
// example, "loss 0.656, accuracy 0.670, ".
std::string Reports::finish_report() {
    std::string text;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
        const double mean = sums_[i] / double(num_summed_);
        text += names_[i] + " " + fixed(mean, 3) + ", ";
        lines_[i].x.push_back(double(step_));
        lines_[i].y.push_back(mean);
        sums_[i] = 0;
    }
    num_summed_ = 0;
    return text;
}

void Reports::end_step(const std::vector<double>& values) {
    const bool is_due = add(values);
    const std::string step = "step " + to_text(step_);
    if (!is_due) return show_progress(step + " of " + to_text(num_steps_));
    const double left = (elapsed_seconds() - start_) / double(step_ - num_replayed_) *
                        double(num_steps_ - step_);
    show_progress("");
    say(step + ": " + finish_report() + fixed(left, 0) + " s left");
}

void Reports::replay(const std::vector<Real>& history) {
    for (std::size_t n = 0; n < history.size(); n += names_.size()) {
        const auto begin = history.begin() + std::ptrdiff_t(n);
        if (add({begin, begin + std::ptrdiff_t(names_.size())})) finish_report();
    }
    num_replayed_ = step_;
}

}  // namespace llm::fine_tune
