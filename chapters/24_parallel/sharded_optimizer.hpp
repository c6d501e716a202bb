// Chapter 24, file 4 of 6: a sharded optimizer (ZeRO, stage 1).
#pragma once

#include "chapters/24_parallel/data_parallel.hpp"

namespace llm {

// The L2 norm of a gradient of which each rank has a shard. The norm of a shard is less.
double sharded_grad_norm(Communicator& ranks, const std::vector<Parameter>& gradient_shard);

// The optimizer's step with a shard: clips by the norm of the whole gradient, and updates this
// rank's shard of the parameters. Counts the step.
StepMetrics update_shard(Communicator& ranks, TrainerState& state,
                         const TrainingArguments& args, double loss,
                         const std::vector<Parameter>& parameter_shard,
                         const std::vector<Parameter>& gradient_shard);

// This rank's part of each group of flat_parameters().
std::vector<Parameter> shard_of_rank(const Communicator& ranks, Model& model);

// The inverse: the numbers of the shards of all ranks, such as their moving averages, in the
// order of shard_of_rank, become the values of `whole` on each rank.
void gather_shards(Communicator& ranks, std::span<const Real> shard, Model& whole);

// A state whose optimizer has only the moving averages of this rank's shard. Throws ValueError
// if the optimizer is Muon, which needs whole matrices.
TrainerState make_sharded_optimizer(const Communicator& ranks, const Model& model,
                                    const TrainingArguments& args);

// As data_parallel_step, but each rank gets the sums of its shard of the gradient alone,
// updates that shard, and gets the other shards of the parameters. Source: Rajbhandari et al.,
// 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.1.
StepMetrics sharded_optimizer_step(Communicator& ranks, TrainerState& state,
                                   const TrainingArguments& args, const std::vector<Id>& tokens,
                                   std::vector<Model>& gradients);

}  // namespace llm
