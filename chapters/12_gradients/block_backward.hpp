// Chapter 12: forward and backward passes of the blocks of chapter 08.
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/mlp_backward.hpp"

namespace llm {

// What the backward pass of a block needs from its forward pass, for every norm
// placement of chapter 08.
struct BlockActivations {
    Tensor3 input;                   // (B, T, C): the residual stream before the block
    AttentionActivations self_attn;  // with its input
    Tensor3 attention_output;        // (B, T, C)
    Tensor3 after_attention;         // (B, T, C): the residual stream between the sublayers
    MlpActivations mlp;              // with its input
    Tensor3 mlp_output;              // (B, T, C)
};

// Overloads for every block of chapter 08. The forward pass returns the same hidden states as
// block(hidden_states, inputs), (B, T, C), and saves its activations; a generator enables
// dropout. The backward pass returns the gradient with respect to the input, (B, T, C).
template <class Norm, class MlpLayer>
Tensor3 block_forward(const PreNormBlockWith<Norm, MlpLayer>& block,
                      const Tensor3& hidden_states, const AttentionInputs& inputs,
                      BlockActivations& saved, Generator* dropout_generator = nullptr);
template <class Norm, class MlpLayer>
Tensor3 block_backward(const PreNormBlockWith<Norm, MlpLayer>& block,
                       const AttentionInputs& inputs, const BlockActivations& saved,
                       const Tensor3& output_gradient,
                       PreNormBlockWith<Norm, MlpLayer>& gradient);

Tensor3 block_forward(const PostNormBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator = nullptr);
Tensor3 block_backward(const PostNormBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       PostNormBlock& gradient);

Tensor3 block_forward(const ResPostNormBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator = nullptr);
Tensor3 block_backward(const ResPostNormBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       ResPostNormBlock& gradient);

Tensor3 block_forward(const SandwichBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator = nullptr);
Tensor3 block_backward(const SandwichBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       SandwichBlock& gradient);

Tensor3 block_forward(const ParallelBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator = nullptr);
Tensor3 block_backward(const ParallelBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       ParallelBlock& gradient);

// A block that saves its activations when it is called, so that chapter 09's run_layers can run
// the forward pass of training.
template <class AnyBlock>
struct SavingBlock {
    const AnyBlock* block;
    BlockActivations* saved;
    Generator* dropout_generator = nullptr;

    BlockOutput operator()(const Tensor3& hidden_states, const AttentionInputs& inputs,
                           LayerCache*) const {
        return {block_forward(*block, hidden_states, inputs, *saved, dropout_generator), {}};
    }
};

}  // namespace llm
