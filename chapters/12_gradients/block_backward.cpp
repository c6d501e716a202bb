#include "chapters/12_gradients/block_backward.hpp"

namespace llm {

ForwardPass<BlockActivations> block_forward(const ParallelBlock& block,
                                            const Tensor3& hidden_states,
                                            const AttentionInputs& inputs,
                                            Generator* dropout_generator) {
    const Tensor3 normalized = block.norm(hidden_states);
    auto [attention_output, self_attn] =
        attention_forward(block.self_attn, normalized, inputs, dropout_generator);
    auto [mlp_output, mlp] = mlp_forward(block.mlp, normalized);
    Tensor3 after_attention = hidden_states + attention_output;
    Tensor3 output = after_attention + mlp_output;
    return {std::move(output),
            {hidden_states, std::move(self_attn), std::move(attention_output),
             std::move(after_attention), std::move(mlp), std::move(mlp_output)}};
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
