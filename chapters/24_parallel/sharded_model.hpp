// Chapter 24, file 5 of 6: sharded gradients and parameters (ZeRO, stages 2 and 3).
#pragma once

#include "chapters/24_parallel/sharded_optimizer.hpp"

namespace llm {

// What is divided among the ranks; each stage includes those before it. Source: Rajbhandari et
// al., 2020, section 5.
enum class ZeroStage { none, optimizer_states, gradients, parameters };

// A block of which each rank keeps a shard between its uses: of its parameters or, in the model
// of gradients, of its gradient. Source: Zhao et al., 2023, "PyTorch FSDP", section 3.
struct ShardedBlock {
    using AttentionType = PreNormBlock::AttentionType;

    Communicator* ranks;
    std::vector<Real> shard;  // this rank's part
    PreNormBlock* whole;      // the buffer in which all parts are gathered
    bool is_whole;            // all parts stay in the buffer between uses (stage 2)

    const PreNormBlock& all_gather() const;
    const PreNormBlock& unshard() const { return is_whole ? *whole : all_gather(); }
    std::vector<Parameter> pieces();  // the parameters of the shard
};

// The forward pass gathers the parameters before it uses them. The backward pass gathers them
// once more, computes the whole gradient of the block, and adds this rank's part of the sums
// over all ranks to its shard.
ForwardPass<BlockActivations> block_forward(const ShardedBlock& block,
                                            const Tensor3& hidden_states,  // (B, T, C)
                                            const AttentionInputs& inputs,
                                            Generator* dropout_generator = nullptr);
Tensor3 block_backward(const ShardedBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved,
                       const Tensor3& output_gradient,  // (B, T, C)
                       ShardedBlock& gradient);         // -> (B, T, C)

// A model of such blocks, and its gradient. Embedding, final norm and head are whole on each
// rank while a step runs; their gradient is reduced at its end.
class ShardedModel {
 public:
    // Throws ValueError unless the stage is gradients or parameters.
    ShardedModel(Communicator& ranks, const Model& whole, ZeroStage stage);
    ShardedModel(const ShardedModel&) = delete;  // the blocks have pointers to the buffers
    ShardedModel& operator=(const ShardedModel&) = delete;

    std::vector<Parameter> parameter_shard();
    std::vector<Parameter> gradient_shard();

    // The sum over all ranks of what each adds to the loss and the gradient of a step.
    double loss_and_gradient(const TrainingArguments& args,
                             const std::vector<RankBatch>& batches);
    // Gathers the parameters that stay whole, after an update of the shards.
    void gather_updated();
    // The whole model, on each rank.
    Model gather() const;

 private:
    // The part of this rank of what lies outside the blocks, then the shards of the blocks.
    std::vector<Parameter> shard_of_rank(DecoderModel<ShardedBlock>& model) const;

    Communicator& ranks_;
    std::vector<PreNormBlock> whole_blocks_;  // stage 2: all; stage 3: one, which all share
    PreNormBlock block_gradient_;
    DecoderModel<ShardedBlock> model_, gradient_;
};

// As sharded_optimizer_step. The state has the optimizer of make_sharded_optimizer, the losses
// and the number of steps; its model is not used.
StepMetrics sharded_model_step(Communicator& ranks, ShardedModel& model, TrainerState& state,
                               const TrainingArguments& args, const std::vector<Id>& tokens);

}  // namespace llm
