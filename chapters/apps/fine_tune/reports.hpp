// What a run prints of its steps.
#pragma once

#include <string>
#include <vector>

#include "common/output/plot.hpp"
#include "common/tensors/real.hpp"

namespace llm::fine_tune {

// The averages of some numbers over the steps since the last report. Prints about eight lines
// during a run, and the current step in a terminal.
class Reports {
 public:
    Reports(std::size_t num_steps, std::vector<std::string> names);

    void end_step(const std::vector<double>& values);
    // The steps of a run that is resumed: counts them, and prints nothing.
    void replay(const std::vector<Real>& history);

    std::size_t num_steps_done() const { return step_; }
    const std::vector<Real>& history() const { return history_; }  // all numbers, step by step
    const std::vector<Line>& lines() const { return lines_; }      // the averages

 private:
    bool add(const std::vector<double>& values);
    std::string finish_report();

    std::size_t num_steps_, step_ = 0, num_summed_ = 0, num_replayed_ = 0;
    std::vector<std::string> names_;
    std::vector<double> sums_;
    std::vector<Real> history_;
    std::vector<Line> lines_;
    double start_;
};

}  // namespace llm::fine_tune
