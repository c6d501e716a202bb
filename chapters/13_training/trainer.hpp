// Chapter 13, file 3 of 10 — How does a model learn?
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/13_training/data.hpp"
#include "chapters/13_training/documents.hpp"
#include "chapters/13_training/lr_schedule.hpp"
#include "chapters/13_training/muon.hpp"
#include "chapters/13_training/optimizer.hpp"

namespace llm {

// Makes a model with the initial weights of a training run. Matrices are sampled from a normal
// distribution with standard deviation 0.02; those of o_proj and down_proj are then multiplied
// by 1/√(2L) (scale_for_depth of chapter 08). Norm weights are 1, biases 0. Source: GPT-2
// (Radford et al., 2019), section 2.3, and its code.
Model make_model_for_training(const Config& config, Generator& generator);

// Which optimizer updates the hidden matrices. AdamW updates all other parameters.
enum class OptimizerType { adamw, muon };

// The hyperparameters of a run, named as in Hugging Face's TrainingArguments. One step
// processes gradient_accumulation_steps batches (micro-batches) of B sequences of T tokens.
struct TrainingArguments {
    std::size_t batch_size = 16;  // B; HF: per_device_train_batch_size
    std::size_t seq_len = 64;     // T
    std::size_t gradient_accumulation_steps = 1;
    LRSchedule lr_schedule;
    std::size_t extra_steps = 0;  // after those of the schedule, with its min_learning_rate
    OptimizerType optimizer = OptimizerType::adamw;  // HF: optim
    Real weight_decay = Real(0.1);
    double max_grad_norm = 1;
    std::uint32_t seed = 77;
    // Documents begin with this token; none: attention crosses documents.
    std::optional<Id> end_of_text_id = std::nullopt;

    std::size_t num_steps() const { return lr_schedule.max_steps + extra_steps; }
};

// The state of a run, from which it can be continued. Batches and dropout masks of a step are
// sampled from a generator that is seeded with the run's seed and the number of the step.
struct TrainerState {
    Model model;
    AdamW optimizer;
    Muon muon;  // without OptimizerType::muon, of no parameters
    std::size_t global_step = 0;
    std::vector<Real> losses;  // of each step
};
TrainerState make_trainer_state(const Model& model, const TrainingArguments& args);

// The parameters, or their gradients, by the optimizer that updates them.
struct ParameterGroups {
    std::vector<Parameter> adamw, muon;
};
ParameterGroups parameter_groups(const std::vector<Parameter>& parameters,
                                 OptimizerType hidden_matrices);

// The position ids and the mask of a batch: causal, within each document if there is an
// end_of_text_id.
AttentionInputs attention_inputs(const Config& config, const TrainingArguments& args,
                                 const IdMatrix& input_ids);  // (B, T)

// One step: forward and backward passes of all batches, then one step of the optimizer.
// `gradients` has one Model (zeros_like) for each of the gradient_accumulation_steps batches.
// Throws Interrupted after Ctrl-C (common/system/interrupt.hpp); the state is then unchanged.
struct StepMetrics {
    double loss, grad_norm;  // the norm before clipping
    Real learning_rate;
};
StepMetrics train_step(TrainerState& state, const TrainingArguments& args,
                       const std::vector<Id>& tokens, std::vector<Model>& gradients);

// Its parts: the batches, each with the seed of its dropout masks, and the update of the
// parameters, whose gradients have this norm.
struct StepBatch {
    Batch batch;
    std::uint32_t dropout_seed;
};
std::vector<StepBatch> sample_batches(const TrainingArguments& args, std::size_t step,
                                      const std::vector<Id>& tokens);
StepMetrics update_parameters(TrainerState& state, const TrainingArguments& args, double loss,
                              const std::vector<Parameter>& parameters,
                              const std::vector<Parameter>& gradients, double norm);

// Runs the remaining steps and calls on_step_end after each one, which can set
// should_training_stop. Source: Hugging Face, TrainerCallback and TrainerControl.
struct TrainerControl {
    bool should_training_stop = false;
};
using OnStepEnd = std::function<void(const StepMetrics&, TrainerControl&)>;
void train(TrainerState& state, const TrainingArguments& args, const std::vector<Id>& tokens,
           const OnStepEnd& on_step_end = {});
// The same loop with steps of another kind.
void run_steps(TrainerState& state, const TrainingArguments& args,
               const std::function<StepMetrics()>& take_step, const OnStepEnd& on_step_end);

// The mean loss over up to max_batches batches, evenly spaced over the tokens, without dropout.
// Throws Interrupted after Ctrl-C.
double evaluate_loss(const Model& model, const std::vector<Id>& tokens,
                     const TrainingArguments& args, std::size_t max_batches);
// The mean of loss(batch) over the batches, which are processed in parallel.
double mean_loss(const std::vector<Batch>& batches,
                 const std::function<double(const Batch&)>& loss);

}  // namespace llm
