// Chapter 28, file 3 of 10: a pipeline. Each rank has some of the layers, and the micro-batches
// of a step pass through the ranks one after another.
#pragma once

#include "chapters/28_model_parallel/vocabulary_parallel.hpp"

namespace llm {

// One pass of one micro-batch, numbered from 0; and those of a stage in the order in which it
// runs them. A step has m micro-batches and p stages.
enum class Pass { forward, backward };
struct StageAction {
    Pass pass;
    std::size_t micro_batch;

    bool operator==(const StageAction&) const = default;
};
using StageSchedule = std::vector<StageAction>;

// All forward passes, then all backward passes. Source: "GPipe" (Huang et al., 2019).
StageSchedule gpipe_schedule(std::size_t num_micro_batches);  // m
// As soon as a backward pass can run, it runs before the next forward pass ("one forward, one
// backward"): a stage has the activations of at most p - stage micro-batches. Source:
// "PipeDream" (Narayanan et al., 2019); Megatron-LM.
StageSchedule one_forward_one_backward_schedule(std::size_t num_micro_batches,  // m
                                                std::size_t num_stages,         // p
                                                std::size_t stage);             // 0 to p - 1

// When the actions of all stages run, if messages take no time: each begins when its stage is
// idle and its input is there.
struct TimedAction {
    StageAction action;
    double begin, end;
};
std::vector<std::vector<TimedAction>> run_times(  // (p, 2m)
    const std::vector<StageSchedule>& schedules,  // (p, 2m)
    double forward_time, double backward_time);   // of one micro-batch
// The share of the time in which stages are idle; 0 to 1. For both schedules it is
// (p - 1) / (m + p - 1).
double bubble(const std::vector<std::vector<TimedAction>>& times);
// The most micro-batches whose activations a stage keeps at once.
std::size_t most_in_flight(const StageSchedule& schedule);

// A model with the layers of one stage alone. The first stage also has the embedding, the last
// one the final norm and the head. If the head is tied, both have the matrix.
template <class AnyModel>
struct PipelineStage {
    AnyModel part;
    Communicator* ranks;  // rank s is stage s

    bool is_first() const { return ranks->rank() == 0; }
    bool is_last() const { return ranks->rank() + 1 == ranks->size(); }
};
// This rank's stage; tensors that it does not need are empty. Throws ValueError if there are
// more stages than layers.
template <class AnyModel>
PipelineStage<AnyModel> pipeline_stage(const AnyModel& model, Communicator& ranks);

// One micro-batch, and its share of the tokens of the step.
template <class Inputs>
struct MicroBatchWith {
    IdMatrix input_ids, targets;  // (B, T)
    Inputs inputs;                // of attention, for T positions
    Real share;
};
using MicroBatch = MicroBatchWith<AttentionInputs>;
template <class AnyModel>
using MicroBatchOf = MicroBatchWith<typename AnyModel::Attention::Inputs>;
template <class AnyModel>
using MicroBatchesOf = std::vector<MicroBatchOf<AnyModel>>;  // m

// One step: runs the schedule, with messages between neighbors. Returns the sum of share times
// loss on the last stage, 0 on the others; gradients are accumulated over the micro-batches.
// Each backward pass uses what its forward pass has saved.
template <class AnyModel>
double run_schedule(const PipelineStage<AnyModel>& stage, const StageSchedule& schedule,
                    const MicroBatchesOf<AnyModel>& micro_batches, AnyModel& gradient);

// Adds up the two gradients of a tied matrix, that of the embedding on the first stage and that
// of the head on the last one, so that both stages update it equally.
template <class AnyModel>
void sum_tied_gradients(const PipelineStage<AnyModel>& stage, AnyModel& gradient);

}  // namespace llm
