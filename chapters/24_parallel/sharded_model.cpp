#include "chapters/24_parallel/sharded_model.hpp"

namespace llm {
namespace {

FlatParameters parameters_of(PreNormBlock& block) {
    FlatParameters list;
    add_parameters(list, "layer", block);
    return list;
}

std::vector<Real> shard_values(const Communicator& ranks, PreNormBlock& block) {
    const FlatParameters parameters = parameters_of(block);
    return flatten(shard_of(parameters, part_of_rank(ranks, parameters)));
}

}  // namespace

const PreNormBlock& ShardedBlock::all_gather() const {
    const FlatParameters parameters = parameters_of(*whole);
    unflatten(shard, shard_of(parameters, part_of_rank(*ranks, parameters)));
    transform_flattened(parameters, [&](std::span<Real> flat) { ranks->all_gather(flat); });
    return *whole;
}

std::vector<Parameter> ShardedBlock::pieces() {
    const FlatParameters parameters = parameters_of(*whole);
    return on_shard(shard_of(parameters, part_of_rank(*ranks, parameters)), shard);
}

ForwardPass<BlockActivations> block_forward(const ShardedBlock& block,
                                            const Tensor3& hidden_states,
                                            const AttentionInputs& inputs,
                                            Generator* dropout_generator) {
    return block_forward(block.unshard(), hidden_states, inputs, dropout_generator);
}

Tensor3 block_backward(const ShardedBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       ShardedBlock& gradient) {
    // The whole gradient of this rank's tokens.
    const FlatParameters parameters = parameters_of(*gradient.whole);
    fill_with_zeros(parameters);
    Tensor3 input_gradient =
        block_backward(block.unshard(), inputs, saved, output_gradient, *gradient.whole);

    // The shard of the sums over all ranks.
    std::vector<Real> flat = flatten(parameters);
    block.ranks->reduce_scatter(std::span(flat));
    const std::size_t begin = part_of_rank(*block.ranks, parameters).begin;
    for (std::size_t i = 0; i < gradient.shard.size(); ++i)
        gradient.shard[i] += flat[begin + i];
    return input_gradient;
}

ShardedModel::ShardedModel(Communicator& ranks, const Model& whole, ZeroStage stage)
    : ranks_(ranks),
      whole_blocks_(whole.layers),
      block_gradient_(whole.layers[0]),
      model_(with_layers(whole,
                         [&](PreNormBlock block) {
                             return ShardedBlock{&ranks, shard_values(ranks, block), nullptr,
                                                 stage == ZeroStage::gradients};
                         })),
      gradient_(model_) {
    require(stage == ZeroStage::gradients || stage == ZeroStage::parameters,
            "a sharded model: the stages are gradients and parameters");
    // In stage 3, the blocks share one buffer.
    if (stage == ZeroStage::parameters) whole_blocks_.resize(1);
    for (std::size_t n = 0; n < model_.layers.size(); ++n) {
        model_.layers[n].whole = &whole_blocks_[stage == ZeroStage::gradients ? n : 0];
        gradient_.layers[n].whole = &block_gradient_;
    }
}

std::vector<Parameter> ShardedModel::shard_of_rank(DecoderModel<ShardedBlock>& model) const {
    const FlatParameters outside = parameters_outside_layers(model);
    std::vector<Parameter> shard = shard_of(outside, part_of_rank(ranks_, outside));
    for (ShardedBlock& block : model.layers)
        for (const Parameter& piece : block.pieces()) shard.push_back(piece);
    return shard;
}
std::vector<Parameter> ShardedModel::parameter_shard() { return shard_of_rank(model_); }
std::vector<Parameter> ShardedModel::gradient_shard() { return shard_of_rank(gradient_); }

double ShardedModel::loss_and_gradient(const TrainingArguments& args,
                                       const std::vector<RankBatch>& batches) {
    const FlatParameters outside = parameters_outside_layers(gradient_);
    fill_with_zeros(outside);
    for (ShardedBlock& block : gradient_.layers)
        std::fill(block.shard.begin(), block.shard.end(), Real(0));

    double share = 0;
    for (const RankBatch& batch : batches)
        share += share_of_loss(model_, args, batch, gradient_);

    // The gradients of the blocks are reduced already.
    transform_flattened(outside, [&](std::span<Real> flat) { ranks_.reduce_scatter(flat); });
    return sum_of_shares(ranks_, share);
}

void ShardedModel::gather_updated() {
    transform_flattened(parameters_outside_layers(model_),
                        [&](std::span<Real> flat) { ranks_.all_gather(flat); });
    for (const ShardedBlock& block : model_.layers)
        if (block.is_whole) block.all_gather();
}

Model ShardedModel::gather() const {
    return with_layers(model_, [](const ShardedBlock& block) { return block.unshard(); });
}

StepMetrics sharded_model_step(Communicator& ranks, ShardedModel& model, TrainerState& state,
                               const TrainingArguments& args, const std::vector<Id>& tokens) {
    const double loss = model.loss_and_gradient(
        args, batches_of_rank(sample_batches(args, state.global_step, tokens), ranks.size(),
                              ranks.rank()));
    const StepMetrics metrics =
        update_shard(ranks, state, args, loss, model.parameter_shard(), model.gradient_shard());
    model.gather_updated();
    return metrics;
}

}  // namespace llm
