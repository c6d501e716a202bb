// Chapter 13, ablations: runs that differ in one choice, with several seeds each.
#pragma once

#include <functional>

#include "chapters/13_training/ablations/ablation_model.hpp"
#include "chapters/13_training/trainer.hpp"

namespace llm {

// The arrangements of chapter 08, with their names.
std::vector<std::pair<std::string, Arrangement>> named_arrangements();

// At initialization with xavier_normal: the norm of the gradient of each layer's down_proj for
// this batch. (L), first layer first; the mean over seeds 1 to num_seeds. Source: Xiong et al.,
// 2020, figure 3.
std::vector<double> initial_gradient_norms(const Config& config, Arrangement arrangement,
                                           const Batch& batch, std::size_t num_seeds);

// A small run. Weights and batches are sampled from one generator, seeded with args.seed; there
// is one batch per step.
struct Ablation {
    Config config;
    AblationConfig ablation;
    TrainingArguments args;
};
// The mean training loss of the last tenth of the steps, and the validation loss after the run.
// A run ends when its loss is not finite any more; then both are infinite.
struct AblationResult {
    double train_loss = infinity, validation_loss = infinity;
    std::vector<Real> losses;  // of each step
};
AblationResult run_ablation(const Ablation& ablation, const Dataset& dataset);

// Each ablation with seeds 1 to num_seeds. All runs are independent, and are computed in
// parallel.
struct AblationSummary {
    double train_loss, validation_loss;  // means over the seeds
    double range;                        // of the validation losses: largest - smallest
    std::vector<Real> losses;            // of each step, with seed 1
};
std::vector<AblationSummary> run_ablations(
    const std::vector<Ablation>& ablations, const Dataset& dataset, std::size_t num_seeds,
    const std::function<void(std::size_t num_completed)>& after_run = {});

}  // namespace llm
