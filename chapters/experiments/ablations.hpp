// Training runs with one change each, repeated with several seeds.
#pragma once

#include <functional>

#include "chapters/13_training/trainer.hpp"
#include "chapters/experiments/ablation_model.hpp"

namespace llm {

// The norm placements of chapter 08, with their names.
std::vector<std::pair<std::string, NormPlacement>> named_norm_placements();

// Returns (L): the gradient norm of down_proj in each layer for this batch, after
// initialization with xavier_normal, averaged over seeds 1 to num_seeds. Source: Xiong et al.,
// 2020, figure 3.
std::vector<double> initial_gradient_norms(const Config& config, NormPlacement norm_placement,
                                           const Batch& batch, std::size_t num_seeds);

// A training run. Weights and batches are sampled from one generator, which is seeded with
// args.seed. Each step uses one batch (gradient_accumulation_steps is ignored).
struct Ablation {
    Config config;
    AblationConfig ablation;
    TrainingArguments args;
};
// The mean training loss of the last tenth of the steps, and the validation loss after the run.
// A run stops at the first loss that is not finite; then both losses are infinite.
struct AblationResult {
    double train_loss = infinity, validation_loss = infinity;
    std::vector<Real> losses;  // of each step
};
AblationResult run_ablation(const Ablation& ablation, const Dataset& dataset);

// Runs each ablation with seeds 1 to num_seeds. The runs are independent and run in parallel.
struct AblationSummary {
    double train_loss, validation_loss;  // averages over the seeds
    double range;                        // of the validation losses: largest - smallest
    std::vector<Real> losses;            // of each step, with seed 1
};
std::vector<AblationSummary> run_ablations(
    const std::vector<Ablation>& ablations, const Dataset& dataset, std::size_t num_seeds,
    const std::function<void(std::size_t num_completed)>& after_run = {});

}  // namespace llm
