// Chapter 24, file 3 of 6: data parallelism. Each rank has the whole model and computes the
// gradient of its share of the batch.
#pragma once

#include <stdexcept>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/24_parallel/flat_parameters.hpp"

namespace llm {

// A batch that one rank computes, and its share of the tokens of the step.
struct RankBatch {
    StepBatch step_batch;
    Real share;
};

// The sequences of all batches of a step, divided among n ranks: the first ones go to rank 0,
// in batches of up to batch_size. So what a step learns from does not depend on n. (Others,
// such as Hugging Face's Trainer, multiply batch_size by n.) All ranks get the same number of
// batches, because they wait for one another; where sequences are missing, one is repeated with
// share 0. Throws ValueError if there are more ranks than sequences.
std::vector<RankBatch> batches_of_rank(const std::vector<StepBatch>& batches,
                                       std::size_t num_ranks, std::size_t rank);
// How many batches each rank gets.
std::size_t num_batches_of_rank(const TrainingArguments& args, std::size_t num_ranks);

// The loss of a batch times its share, and the gradient of this product, which is accumulated;
// after_layer(layer) is called when the gradient of that layer is complete.
template <class Layer>
double share_of_loss(const DecoderModel<Layer>& model, const TrainingArguments& args,
                     const RankBatch& rank_batch, DecoderModel<Layer>& gradient,
                     const std::function<void(std::size_t layer)>& after_layer = {}) {
    const auto& [step_batch, share] = rank_batch;
    const auto& [input_ids, targets] = step_batch.batch;
    Generator dropout_generator(step_batch.dropout_seed);
    const AttentionInputs inputs = attention_inputs(model.config, args, input_ids);
    const auto [logits, activations] =
        model_forward(model, input_ids, inputs, &dropout_generator);
    const Tensor3 logits_gradient = share * cross_entropy_backward(logits, targets);
    model_backward(model, activations, logits_gradient, gradient, after_layer);
    return double(share) * cross_entropy(logits, targets);
}

// What this rank adds to the loss and the gradient of a step. `gradients` has one Model
// (zeros_like) for each of its batches; the first one becomes their sum. Throws Interrupted
// after Ctrl-C.
double share_of_step(const Communicator& ranks, const TrainerState& state,
                     const TrainingArguments& args, const std::vector<Id>& tokens,
                     std::vector<Model>& gradients);

// The loss of the step: the sum of the shares of all ranks. Throws LossNotFinite on all ranks,
// with the numbers of those whose share is not finite.
struct LossNotFinite : std::runtime_error {
    using std::runtime_error::runtime_error;
};
double sum_of_shares(Communicator& ranks, double share);
// Sums over all ranks: of one number, and of each element of a gradient.
double sum_over_ranks(Communicator& ranks, double value);
void all_reduce_gradient(Communicator& ranks, Model& gradient);

// share_of_loss and all_reduce_gradient at once: the gradient of a layer is reduced while the
// backward pass of the layers before it runs. Returns the share of the loss.
double overlapped_gradient(Communicator& ranks, const Model& model,
                           const TrainingArguments& args, const RankBatch& batch,
                           Model& gradient);

// train_step of chapter 13 on all ranks, which call it with equal states and leave it with
// equal states. Source: Li et al., 2020, "PyTorch Distributed", section 3.
StepMetrics data_parallel_step(Communicator& ranks, TrainerState& state,
                               const TrainingArguments& args, const std::vector<Id>& tokens,
                               std::vector<Model>& gradients);

}  // namespace llm
