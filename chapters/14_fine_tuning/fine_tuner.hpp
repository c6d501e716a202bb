// Chapter 14, file 3 of 13: one training step for any loss of log-probabilities.
#pragma once

#include <functional>
#include <optional>

#include "chapters/13_training/optimizer.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"
#include "chapters/14_fine_tuning/lora.hpp"

namespace llm {

// A frozen base model and the adapter that is trained in its place.
struct LoraTraining {
    Model base;
    LoraAdapter adapter;
};

// The state of a fine-tuning run. With LoRA, the model has the merged weights.
struct FineTuner {
    Model model;
    std::optional<LoraTraining> lora;  // none: all parameters are trained
    AdamW optimizer;
};
// Without an adapter, full fine-tuning. Throws ValueError if the adapter does not fit.
FineTuner make_fine_tuner(const Model& model, const std::optional<LoraAdapter>& adapter = {});

// A loss of the log-probabilities of a batch, (B, T), for example sft_loss with its mask.
using LossOfLogProbs = std::function<TokenLoss(const Matrix& log_probs)>;

// The log-probability of each target, without gradients: old and reference log-probabilities.
Matrix batch_log_probs(const Model& model, const ResponseBatch& batch);  // (B, T)

// One step: forward passes of all sequences, the loss of all their log-probabilities, backward
// passes, gradient clipping, AdamW. The sequences are divided among the `gradients`, each a
// Model (zeros_like), and processed in parallel; their number, not the number of cores,
// determines the order of the additions. The activations of all sequences are in memory at the
// same time. Throws ValueError if there are no gradients.
struct FineTuningMetrics {
    double loss, grad_norm;  // the norm before clipping
};
FineTuningMetrics fine_tuning_step(FineTuner& tuner, const ResponseBatch& batch,
                                   const LossOfLogProbs& loss, Real learning_rate,
                                   double max_grad_norm, std::vector<Model>& gradients);

}  // namespace llm
