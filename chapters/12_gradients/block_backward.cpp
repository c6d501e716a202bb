#include "chapters/12_gradients/block_backward.hpp"

namespace llm {

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
