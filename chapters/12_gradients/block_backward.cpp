#include "chapters/12_gradients/block_backward.hpp"

#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {

// A sum passes its gradient to both summands unchanged. In pre-norm, the backward pass of each
// sublayer adds to the gradient of the residual stream.

template <class Norm, class MlpLayer>
Tensor3 block_forward(const PreNormBlockWith<Norm, MlpLayer>& block,
                      const Tensor3& hidden_states, const AttentionInputs& inputs,
                      BlockActivations& saved, Generator* dropout_generator) {
    saved.input = hidden_states;
    saved.attention_output =
        attention_forward(block.self_attn, block.attention_norm(hidden_states), inputs,
                          saved.self_attn, dropout_generator);
    saved.after_attention = hidden_states + saved.attention_output;
    saved.mlp_output = mlp_forward(block.mlp, block.ffn_norm(saved.after_attention), saved.mlp);
    return saved.after_attention + saved.mlp_output;
}

template <class Norm, class MlpLayer>
Tensor3 block_backward(const PreNormBlockWith<Norm, MlpLayer>& block,
                       const AttentionInputs& inputs, const BlockActivations& saved,
                       const Tensor3& output_gradient,
                       PreNormBlockWith<Norm, MlpLayer>& gradient) {
    const Tensor3 mlp_gradient =
        mlp_backward(block.mlp, saved.mlp, output_gradient, gradient.mlp);
    const Tensor3 after_attention_gradient =
        output_gradient +
        norm_backward(block.ffn_norm, saved.after_attention, mlp_gradient, gradient.ffn_norm);
    const Tensor3 normalized_gradient = attention_backward(
        block.self_attn, inputs, saved.self_attn, after_attention_gradient, gradient.self_attn);
    const Tensor3 attention_gradient = norm_backward(
        block.attention_norm, saved.input, normalized_gradient, gradient.attention_norm);
    return after_attention_gradient + attention_gradient;
}

#define INSTANTIATE(Norm, MlpLayer)                                                         \
    template Tensor3 block_forward(const PreNormBlockWith<Norm, MlpLayer>&, const Tensor3&, \
                                   const AttentionInputs&, BlockActivations&, Generator*);  \
    template Tensor3 block_backward(const PreNormBlockWith<Norm, MlpLayer>&,                \
                                    const AttentionInputs&, const BlockActivations&,        \
                                    const Tensor3&, PreNormBlockWith<Norm, MlpLayer>&);
INSTANTIATE(RMSNorm, GatedMlp)
INSTANTIATE(RMSNorm, Mlp)
INSTANTIATE(LayerNorm, GatedMlp)
INSTANTIATE(LayerNorm, Mlp)
#undef INSTANTIATE

Tensor3 block_forward(const PostNormBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator) {
    saved.input = hidden_states;
    saved.attention_output = attention_forward(block.self_attn, hidden_states, inputs,
                                               saved.self_attn, dropout_generator);
    saved.after_attention = block.attention_norm(hidden_states + saved.attention_output);
    saved.mlp_output = mlp_forward(block.mlp, saved.after_attention, saved.mlp);
    return block.ffn_norm(saved.after_attention + saved.mlp_output);
}

// Here the gradient of the residual stream passes through every norm.
Tensor3 block_backward(const PostNormBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       PostNormBlock& gradient) {
    const Tensor3 mlp_sum_gradient =
        norm_backward(block.ffn_norm, saved.after_attention + saved.mlp_output, output_gradient,
                      gradient.ffn_norm);
    const Tensor3 after_attention_gradient =
        mlp_sum_gradient + mlp_backward(block.mlp, saved.mlp, mlp_sum_gradient, gradient.mlp);
    const Tensor3 attention_sum_gradient =
        norm_backward(block.attention_norm, saved.input + saved.attention_output,
                      after_attention_gradient, gradient.attention_norm);
    return attention_sum_gradient + attention_backward(block.self_attn, inputs, saved.self_attn,
                                                       attention_sum_gradient,
                                                       gradient.self_attn);
}

Tensor3 block_forward(const ResPostNormBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator) {
    saved.input = hidden_states;
    saved.attention_output = attention_forward(block.self_attn, hidden_states, inputs,
                                               saved.self_attn, dropout_generator);
    saved.after_attention = hidden_states + block.attention_norm(saved.attention_output);
    saved.mlp_output = mlp_forward(block.mlp, saved.after_attention, saved.mlp);
    return saved.after_attention + block.ffn_norm(saved.mlp_output);
}

Tensor3 block_backward(const ResPostNormBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       ResPostNormBlock& gradient) {
    const Tensor3 mlp_output_gradient =
        norm_backward(block.ffn_norm, saved.mlp_output, output_gradient, gradient.ffn_norm);
    const Tensor3 after_attention_gradient =
        output_gradient + mlp_backward(block.mlp, saved.mlp, mlp_output_gradient, gradient.mlp);
    const Tensor3 attention_output_gradient =
        norm_backward(block.attention_norm, saved.attention_output, after_attention_gradient,
                      gradient.attention_norm);
    return after_attention_gradient +
           attention_backward(block.self_attn, inputs, saved.self_attn,
                              attention_output_gradient, gradient.self_attn);
}

Tensor3 block_forward(const SandwichBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator) {
    saved.input = hidden_states;
    saved.attention_output =
        attention_forward(block.self_attn, block.attention_norm(hidden_states), inputs,
                          saved.self_attn, dropout_generator);
    saved.after_attention = hidden_states + block.attention_output_norm(saved.attention_output);
    saved.mlp_output = mlp_forward(block.mlp, block.ffn_norm(saved.after_attention), saved.mlp);
    return saved.after_attention + block.ffn_output_norm(saved.mlp_output);
}

Tensor3 block_backward(const SandwichBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       SandwichBlock& gradient) {
    const Tensor3 mlp_output_gradient = norm_backward(
        block.ffn_output_norm, saved.mlp_output, output_gradient, gradient.ffn_output_norm);
    const Tensor3 mlp_gradient =
        mlp_backward(block.mlp, saved.mlp, mlp_output_gradient, gradient.mlp);
    const Tensor3 after_attention_gradient =
        output_gradient +
        norm_backward(block.ffn_norm, saved.after_attention, mlp_gradient, gradient.ffn_norm);
    const Tensor3 attention_output_gradient =
        norm_backward(block.attention_output_norm, saved.attention_output,
                      after_attention_gradient, gradient.attention_output_norm);
    const Tensor3 attention_gradient =
        attention_backward(block.self_attn, inputs, saved.self_attn, attention_output_gradient,
                           gradient.self_attn);
    return after_attention_gradient + norm_backward(block.attention_norm, saved.input,
                                                    attention_gradient,
                                                    gradient.attention_norm);
}

Tensor3 block_forward(const ParallelBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator) {
    saved.input = hidden_states;
    const Tensor3 normalized = block.norm(hidden_states);
    saved.attention_output = attention_forward(block.self_attn, normalized, inputs,
                                               saved.self_attn, dropout_generator);
    saved.after_attention = hidden_states + saved.attention_output;
    saved.mlp_output = mlp_forward(block.mlp, normalized, saved.mlp);
    return saved.after_attention + saved.mlp_output;
}

Tensor3 block_backward(const ParallelBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       ParallelBlock& gradient) {
    const Tensor3 normalized_gradient =
        attention_backward(block.self_attn, inputs, saved.self_attn, output_gradient,
                           gradient.self_attn) +
        mlp_backward(block.mlp, saved.mlp, output_gradient, gradient.mlp);
    return output_gradient +
           norm_backward(block.norm, saved.input, normalized_gradient, gradient.norm);
}

}  // namespace llm
