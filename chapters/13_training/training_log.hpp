// Chapter 13, file 7 of 10: the log of a training run, one JSON object per line.
#pragma once

#include "chapters/13_training/trainer.hpp"

namespace llm {

// Appends to log.jsonl, which programs such as pandas and jq read:
//   {"step":250,"loss":2.169,"learning_rate":0.0029,"grad_norm":0.7,"tokens":900,"seconds":9.8}
//   {"step":250,"validation_loss":2.198}
// Tokens and seconds of training are counted from the start of the run.
class TrainingLog {
 public:
    // Opens the log of a run that has completed these steps. Removes the lines of later steps,
    // which a killed run leaves, because those steps will be trained again. Throws FileError.
    TrainingLog(const std::string& file, std::size_t global_step);

    // The validation losses so far, and the seconds of training.
    struct Evaluation {
        std::size_t step;
        double loss;
    };
    const std::vector<Evaluation>& evaluations() const { return evaluations_; }
    double seconds() const { return seconds_; }
    // The last step with a line: earlier than global_step if the file was cut.
    std::size_t last_step() const { return last_step_; }

    // Each line is written at once. Throw FileError.
    void append_step(std::size_t step, const StepMetrics& metrics, std::size_t tokens,
                     double seconds);
    void append_evaluation(std::size_t step, double loss);

 private:
    std::string file_;
    std::vector<Evaluation> evaluations_;
    double seconds_ = 0;
    std::size_t last_step_ = 0;
};

}  // namespace llm
