#include "chapters/24_parallel/sharded_optimizer.hpp"

#include <cmath>

namespace llm {

double sharded_grad_norm(Communicator& ranks, const std::vector<Parameter>& gradient_shard) {
    const double norm = grad_norm(gradient_shard);
    return std::sqrt(sum_over_ranks(ranks, norm * norm));
}

StepMetrics update_shard(Communicator& ranks, TrainerState& state,
                         const TrainingArguments& args, double loss,
                         const std::vector<Parameter>& parameter_shard,
                         const std::vector<Parameter>& gradient_shard) {
    const double norm = sharded_grad_norm(ranks, gradient_shard);
    return update_parameters(state, args, loss, parameter_shard, gradient_shard, norm);
}

std::vector<Parameter> shard_of_rank(const Communicator& ranks, Model& model) {
    std::vector<Parameter> shard;
    for (const FlatParameters& group : flat_parameters(model)) {
        const FlatParameters pieces = shard_of(group, part_of_rank(ranks, group));
        shard.insert(shard.end(), pieces.begin(), pieces.end());
    }
    return shard;
}

void gather_shards(Communicator& ranks, std::span<const Real> shard, Model& whole) {
    for (const FlatParameters& group : flat_parameters(whole)) {
        const Part part = part_of_rank(ranks, group);
        unflatten(shard.first(part.size), shard_of(group, part));
        shard = shard.subspan(part.size);
        transform_flattened(group, [&](std::span<Real> flat) { ranks.all_gather(flat); });
    }
}

TrainerState make_sharded_optimizer(const Communicator& ranks, const Model& model,
                                    const TrainingArguments& args) {
    require(args.optimizer == OptimizerType::adamw,
            "a sharded optimizer: Muon needs whole matrices, so it has no shards");
    TrainerState state{model, {}, {}, 0, {}};
    state.optimizer.weight_decay = args.weight_decay;
    state.optimizer.reset(shard_of_rank(ranks, state.model));
    return state;
}

StepMetrics sharded_optimizer_step(Communicator& ranks, TrainerState& state,
                                   const TrainingArguments& args, const std::vector<Id>& tokens,
                                   std::vector<Model>& gradients) {
    const double share = share_of_step(ranks, state, args, tokens, gradients);
    const double loss = sum_of_shares(ranks, share);
    for (const FlatParameters& bucket : flat_parameters(gradients[0]))
        transform_flattened(bucket, [&](std::span<Real> flat) { ranks.reduce_scatter(flat); });

    // Update this rank's shard, then collect those of the others.
    const StepMetrics metrics =
        update_shard(ranks, state, args, loss, shard_of_rank(ranks, state.model),
                     shard_of_rank(ranks, gradients[0]));
    for (const FlatParameters& group : flat_parameters(state.model))
        transform_flattened(group, [&](std::span<Real> flat) { ranks.all_gather(flat); });
    return metrics;
}

}  // namespace llm
