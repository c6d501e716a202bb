// Chapter 11, seventh part: runs that differ in one choice.
#pragma once

#include "chapters/13_training/trainer.hpp"
#include "chapters/13_training/ablations/variants.hpp"

namespace llm {

// At the start, drawn as Xavier has it: how long is the gradient of each layer's down_proj, for
// this batch? (L), the first layer first; the mean of so many seeds. Source: Xiong et al.,
// 2020, figure 3.
std::vector<double> gradients_at_start(const ModelConfig& config, Arrangement arrangement,
                                       const Batch& batch, std::size_t seeds);

// A small run: one batch a step, drawn from the plan's seed, as the weights are.
struct Trial {
    ModelConfig config;
    Choices choices;
    Plan plan;
};

// Of the last tenth of its steps the mean loss, and the loss on the held-out part. A run whose
// loss was no number any more has ended there, and both are infinite.
struct Outcome {
    double training_loss, validation_loss;
    std::vector<Real> losses;  // of each step
};
Outcome run_trial(const Trial& trial, const Corpus& corpus);

// The same trial with seeds 1, 2, 3 and so on, and what came of it on average; all runs of all
// trials side by side on all cores.
struct Summary {
    double training_loss, validation_loss;
    double spread;             // of the validation losses: largest - smallest
    std::vector<Real> losses;  // of each step, of the first seed
};
std::vector<Summary> run_trials(const std::vector<Trial>& trials, const Corpus& corpus,
                                std::size_t seeds,
                                const std::function<void(std::size_t done)>& after_run);

}  // namespace llm
