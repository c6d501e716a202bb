#include "chapters/08_pre_vs_post_norm/exercise.hpp"

namespace exercise {

// Exercise 8.1 — the residual connection starts before the norm: x + f(norm(x)).
Tensor3 residual_block(const PreNormBlock& block, const Tensor3& hidden_states,
                       const AttentionInputs& inputs) {
    const Tensor3 attention_input = block.attention_norm(hidden_states);
    const Tensor3 after_attention =
        hidden_states + block.self_attn(attention_input, inputs).hidden_states;
    return after_attention + block.mlp(block.ffn_norm(after_attention));
}

// Exercise 8.2 — the two norms have weights of their own, which are equal only before training.
Tensor3 checkpoint_block(const PreNormBlock& block, const Tensor3& hidden_states,
                         const AttentionInputs& inputs) {
    const Tensor3 attention_input = block.attention_norm(hidden_states);
    const Tensor3 after_attention =
        hidden_states + block.self_attn(attention_input, inputs).hidden_states;
    return after_attention + block.mlp(block.ffn_norm(after_attention));
}

// Exercise 8.3 — the MLP output is added to the residual stream after attention, not to the
// input of the block.
Tensor3 serial_block(const PreNormBlock& block, const Tensor3& hidden_states,
                     const AttentionInputs& inputs) {
    const Tensor3 attention_input = block.attention_norm(hidden_states);
    const Tensor3 after_attention =
        hidden_states + block.self_attn(attention_input, inputs).hidden_states;
    return after_attention + block.mlp(block.ffn_norm(after_attention));
}

// Exercise 8.4 — the blocks never normalize the residual stream itself, so the model does it
// once, after the last layer.
Tensor3 decoder_forward(const Decoder& decoder, const Tensor3& hidden_states,
                        const AttentionInputs& inputs) {
    Tensor3 states = hidden_states;
    for (const PreNormBlock& layer : decoder.layers)
        states = layer(states, inputs).hidden_states;
    return decoder.final_norm(states);
}

// Exercise 8.5 — both norms read the input of the block, so the MLP does not depend on the
// attention output.
Tensor3 neox_block(const AttentionLayer& self_attn, const GatedMlp& mlp,
                   const RMSNorm& attention_norm, const RMSNorm& mlp_norm,
                   const Tensor3& hidden_states, const AttentionInputs& inputs) {
    return hidden_states + self_attn(attention_norm(hidden_states), inputs).hidden_states +
           mlp(mlp_norm(hidden_states));
}

// Exercise 8.6 — in Gemma 2, post_attention_layernorm is applied to the attention output. In a
// Llama checkpoint, the norm before the MLP has this name.
SandwichBlock gemma_block(const AttentionLayer& self_attn, const GatedMlp& mlp,
                          const GemmaWeights& weights, Real eps) {
    return {self_attn,
            mlp,
            gemma_norm(weights.input_layernorm, eps),
            gemma_norm(weights.post_attention_layernorm, eps),
            gemma_norm(weights.pre_feedforward_layernorm, eps),
            gemma_norm(weights.post_feedforward_layernorm, eps)};
}

// Exercise 8.7 — the larger alpha is, the less f(x) changes the direction of the normalized
// sum.
Tensor3 deep_norm_block(const PostNormBlock& block, Real alpha, const Tensor3& hidden_states,
                        const AttentionInputs& inputs) {
    const Tensor3 attention_output = block.self_attn(hidden_states, inputs).hidden_states;
    const Tensor3 after_attention =
        block.attention_norm(hidden_states * alpha + attention_output);
    return block.ffn_norm(after_attention * alpha + block.mlp(after_attention));
}

}  // namespace exercise
