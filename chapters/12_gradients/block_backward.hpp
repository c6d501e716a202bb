// Chapter 12, file 6 of 8: forward and backward passes of the blocks of chapter 08.
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/mlp_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {

// A block is two sublayers f with a residual connection: attention, then the MLP. The norm
// placement says which members of the block are their norms; one that is null is left out.
template <class AnyBlock>
struct ResidualNorms {
    using Norm = decltype(AnyBlock::ffn_norm);
    Norm AnyBlock::*input = nullptr;   // x + f(norm(x))
    Norm AnyBlock::*output = nullptr;  // x + norm(f(x))
    Norm AnyBlock::*sum = nullptr;     // norm(x + f(x))
};
template <class AnyBlock>
struct BlockNorms {
    ResidualNorms<AnyBlock> attention, mlp;
};
template <class Norm, class MlpLayer, class Attention>
auto norms_of(const PreNormBlockWith<Norm, MlpLayer, Attention>&) {
    using Typed = PreNormBlockWith<Norm, MlpLayer, Attention>;
    return BlockNorms<Typed>{{.input = &Typed::attention_norm}, {.input = &Typed::ffn_norm}};
}
template <class Norm, class MlpLayer, class Attention>
auto norms_of(const PostNormBlockWith<Norm, MlpLayer, Attention>&) {
    using Typed = PostNormBlockWith<Norm, MlpLayer, Attention>;
    return BlockNorms<Typed>{{.sum = &Typed::attention_norm}, {.sum = &Typed::ffn_norm}};
}
template <class MlpLayer, class Attention>
auto norms_of(const ResPostNormBlockWith<MlpLayer, Attention>&) {
    using Typed = ResPostNormBlockWith<MlpLayer, Attention>;
    return BlockNorms<Typed>{{.output = &Typed::attention_norm}, {.output = &Typed::ffn_norm}};
}
template <class MlpLayer, class Attention>
auto norms_of(const SandwichBlockWith<MlpLayer, Attention>&) {
    using Typed = SandwichBlockWith<MlpLayer, Attention>;
    return BlockNorms<Typed>{
        {.input = &Typed::attention_norm, .output = &Typed::attention_output_norm},
        {.input = &Typed::ffn_norm, .output = &Typed::ffn_output_norm}};
}

// A norm of a block, forward and backward; null: the identity. The gradient of its weights is
// accumulated in that of the block.
template <class AnyBlock, class Norm>
Tensor3 apply_norm(const AnyBlock& block, Norm AnyBlock::*norm,
                   const Tensor3& input) {  // (B, T, C) -> (B, T, C)
    return norm ? (block.*norm)(input) : input;
}
template <class AnyBlock, class Norm>
Tensor3 apply_norm_backward(const AnyBlock& block, Norm AnyBlock::*norm,
                            const Tensor3& input,            // (B, T, C)
                            const Tensor3& output_gradient,  // (B, T, C)
                            AnyBlock& gradient) {            // -> (B, T, C)
    return norm ? norm_backward(block.*norm, input, output_gradient, gradient.*norm)
                : output_gradient;
}

// What multiplies the output of f; only pre-norm blocks have it.
template <class AnyBlock>
Real residual_multiplier_of(const AnyBlock& block) {
    if constexpr (requires { block.residual_multiplier; })
        return block.residual_multiplier;
    else
        return 1;
}

// x + norm(f(...)), or x + f(...) without a norm.
template <class AnyBlock, class Norm>
Tensor3 add_normalized(const AnyBlock& block, Norm AnyBlock::*norm,
                       const Tensor3& input,              // (B, T, C)
                       const Tensor3& sublayer_output) {  // (B, T, C) -> (B, T, C)
    if (!norm) return input + residual_multiplier_of(block) * sublayer_output;
    return input + (block.*norm)(sublayer_output);
}
// Returns the gradient with respect to the output of f, (B, T, C).
template <class AnyBlock, class Norm>
Tensor3 add_normalized_backward(const AnyBlock& block, Norm AnyBlock::*norm,
                                const Tensor3& sublayer_output,  // (B, T, C)
                                const Tensor3& sum_gradient,     // (B, T, C)
                                AnyBlock& gradient) {
    if (!norm) return residual_multiplier_of(block) * sum_gradient;
    return norm_backward(block.*norm, sublayer_output, sum_gradient, gradient.*norm);
}

// norm(x + norm(f(norm(x)))), with the norms that there are. The sublayer is the forward pass
// of f.
template <class Activations>
struct ResidualForwardPass {
    Tensor3 output;           // (B, T, C)
    Tensor3 sublayer_output;  // (B, T, C): f(...)
    Activations activations;  // of f
};
template <class AnyBlock, class Sublayer>
auto residual_forward(const AnyBlock& block, const ResidualNorms<AnyBlock>& norms,
                      const Tensor3& input,  // (B, T, C): x
                      const Sublayer& sublayer) {
    auto [sublayer_output, activations] = sublayer(apply_norm(block, norms.input, input));
    Tensor3 sum = add_normalized(block, norms.output, input, sublayer_output);
    if (norms.sum) sum = (block.*norms.sum)(sum);
    return ResidualForwardPass<decltype(activations)>{
        std::move(sum), std::move(sublayer_output), std::move(activations)};
}

// Returns the gradient with respect to x. sublayer_backward maps the gradient with respect to
// the output of f to that with respect to its input.
template <class AnyBlock, class SublayerBackward>
Tensor3 residual_backward(const AnyBlock& block, const ResidualNorms<AnyBlock>& norms,
                          const Tensor3& input,            // (B, T, C): x
                          const Tensor3& sublayer_output,  // (B, T, C): f(...)
                          const Tensor3& output_gradient,  // (B, T, C)
                          AnyBlock& gradient, const SublayerBackward& sublayer_backward) {
    // The norm of the sum, whose input is computed again.
    Tensor3 sum_gradient = output_gradient;
    if (norms.sum)
        sum_gradient = norm_backward(
            block.*norms.sum, add_normalized(block, norms.output, input, sublayer_output),
            output_gradient, gradient.*norms.sum);

    // A sum passes its gradient to both summands unchanged: to x, and through f to x.
    const Tensor3 sublayer_gradient = sublayer_backward(
        add_normalized_backward(block, norms.output, sublayer_output, sum_gradient, gradient));
    const Tensor3 gradient_through_sublayer =
        apply_norm_backward(block, norms.input, input, sublayer_gradient, gradient);
    return sum_gradient + gradient_through_sublayer;
}

// What the backward pass of a block needs from its forward pass, for every norm
// placement of chapter 08.
template <class SelfAttention, class MlpOfBlock>
struct BlockActivationsWith {
    Tensor3 input;             // (B, T, C): the residual stream before the block
    SelfAttention self_attn;   // with its input
    Tensor3 attention_output;  // (B, T, C)
    Tensor3 after_attention;   // (B, T, C): the residual stream between the sublayers
    MlpOfBlock mlp;            // with its input
    Tensor3 mlp_output;        // (B, T, C)
};
using BlockActivations = BlockActivationsWith<AttentionActivations, MlpActivations>;

// For every block of chapter 08. The forward pass returns the same hidden states as
// block(hidden_states, inputs); a generator enables dropout. The backward pass returns the
// gradient with respect to the input, (B, T, C).
template <class AnyBlock, class Inputs>
auto block_forward(const AnyBlock& block,
                   const Tensor3& hidden_states,  // (B, T, C)
                   const Inputs& inputs, Generator* dropout_generator = nullptr) {
    const BlockNorms<AnyBlock> norms = norms_of(block);
    auto attention =
        residual_forward(block, norms.attention, hidden_states, [&](const Tensor3& input) {
            return attention_forward(block.self_attn, input, inputs, dropout_generator);
        });
    auto mlp = residual_forward(block, norms.mlp, attention.output, [&](const Tensor3& input) {
        return mlp_forward(block.mlp, input);
    });
    using Saved =
        BlockActivationsWith<decltype(attention.activations), decltype(mlp.activations)>;
    return ForwardPass<Saved>{
        std::move(mlp.output),
        {hidden_states, std::move(attention.activations), std::move(attention.sublayer_output),
         std::move(attention.output), std::move(mlp.activations),
         std::move(mlp.sublayer_output)}};
}
template <class AnyBlock, class Inputs, class Activations>
Tensor3 block_backward(const AnyBlock& block, const Inputs& inputs, const Activations& saved,
                       const Tensor3& output_gradient,  // (B, T, C)
                       AnyBlock& gradient) {
    const BlockNorms<AnyBlock> norms = norms_of(block);
    const Tensor3 after_attention_gradient = residual_backward(
        block, norms.mlp, saved.after_attention, saved.mlp_output, output_gradient, gradient,
        [&](const Tensor3& mlp_gradient) {
            return mlp_backward(block.mlp, saved.mlp, mlp_gradient, gradient.mlp);
        });
    return residual_backward(
        block, norms.attention, saved.input, saved.attention_output, after_attention_gradient,
        gradient, [&](const Tensor3& attention_gradient) {
            return attention_backward(block.self_attn, inputs, saved.self_attn,
                                      attention_gradient, gradient.self_attn);
        });
}

// The parallel block has one sublayer, the sum of attention and MLP.
template <class Norm, class MlpLayer, class Attention, class Inputs>
auto block_forward(const ParallelBlockWith<Norm, MlpLayer, Attention>& block,
                   const Tensor3& hidden_states,  // (B, T, C)
                   const Inputs& inputs, Generator* dropout_generator = nullptr) {
    const Tensor3 normalized = block.norm(hidden_states);
    auto [attention_output, self_attn] =
        attention_forward(block.self_attn, normalized, inputs, dropout_generator);
    auto [mlp_output, mlp] = mlp_forward(block.mlp, normalized);
    Tensor3 after_attention = hidden_states + attention_output;
    Tensor3 output = after_attention + mlp_output;
    using Saved = BlockActivationsWith<decltype(self_attn), decltype(mlp)>;
    return ForwardPass<Saved>{
        std::move(output),
        {hidden_states, std::move(self_attn), std::move(attention_output),
         std::move(after_attention), std::move(mlp), std::move(mlp_output)}};
}
template <class Norm, class MlpLayer, class Attention, class Inputs, class Activations>
Tensor3 block_backward(const ParallelBlockWith<Norm, MlpLayer, Attention>& block,
                       const Inputs& inputs, const Activations& saved,
                       const Tensor3& output_gradient,  // (B, T, C)
                       ParallelBlockWith<Norm, MlpLayer, Attention>& gradient) {
    const Tensor3 normalized_gradient =
        attention_backward(block.self_attn, inputs, saved.self_attn, output_gradient,
                           gradient.self_attn) +
        mlp_backward(block.mlp, saved.mlp, output_gradient, gradient.mlp);
    return output_gradient +
           norm_backward(block.norm, saved.input, normalized_gradient, gradient.norm);
}

// The type of the activations of a block.
template <class AnyBlock>
using ActivationsOf =
    decltype(block_forward(std::declval<const AnyBlock&>(), std::declval<const Tensor3&>(),
                           std::declval<const typename AnyBlock::AttentionType::Inputs&>())
                 .activations);

// A layer that saves its activations when it is called, so that chapter 09's run_layers can run
// the forward pass of training.
template <class Layer>
struct SavingLayer {
    const Layer* layer;
    ActivationsOf<Layer>* saved;
    Generator* dropout_generator = nullptr;

    template <class Inputs, class Cache>
    BlockOutput operator()(const Tensor3& hidden_states, const Inputs& inputs, Cache*) const {
        auto [output, activations] =
            block_forward(*layer, hidden_states, inputs, dropout_generator);
        *saved = std::move(activations);
        return {std::move(output), {}};
    }
};

}  // namespace llm
