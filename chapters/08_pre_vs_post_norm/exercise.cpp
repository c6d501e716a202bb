#include "chapters/08_pre_vs_post_norm/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 8.1 — find the bug. The RMS of the residual stream is about the same after every
// layer. In a pre-norm model it grows over the layers.
Tensor3 residual_block(const PreNormBlock& block, const Tensor3& hidden_states,
                       const AttentionInputs& inputs) {
    const Tensor3 attention_input = block.attention_norm(hidden_states);
    const Tensor3 after_attention =
        attention_input + block.self_attn(attention_input, inputs).hidden_states;
    const Tensor3 mlp_input = block.ffn_norm(after_attention);
    return mlp_input + block.mlp(mlp_input);
}

// Exercise 8.2 — find the bug. The output of a freshly initialized block is right. With the
// weights of a checkpoint it is wrong.
Tensor3 checkpoint_block(const PreNormBlock& block, const Tensor3& hidden_states,
                         const AttentionInputs& inputs) {
    const RMSNorm& norm = block.attention_norm;
    const Tensor3 after_attention =
        hidden_states + block.self_attn(norm(hidden_states), inputs).hidden_states;
    return after_attention + block.mlp(norm(after_attention));
}

// Exercise 8.3 — find the bug. The code implements a formula of the PaLM paper (section 2):
// y = x + MLP(LayerNorm(x + Attention(LayerNorm(x)))).
Tensor3 serial_block(const PreNormBlock& block, const Tensor3& hidden_states,
                     const AttentionInputs& inputs) {
    const Tensor3 attention_input = block.attention_norm(hidden_states);
    const Tensor3 after_attention =
        hidden_states + block.self_attn(attention_input, inputs).hidden_states;
    return hidden_states + block.mlp(block.ffn_norm(after_attention));
}

// Exercise 8.4 — find the bug. Every block is right, but the logits that the output layer
// computes from this result are larger the more layers the model has, and the probabilities are
// close to 0 and 1.
Tensor3 decoder_forward(const Decoder& decoder, const Tensor3& hidden_states,
                        const AttentionInputs& inputs) {
    Tensor3 states = hidden_states;
    for (const PreNormBlock& layer : decoder.layers)
        states = layer(states, inputs).hidden_states;
    return states;
}

// Exercise 8.5 — write neox_block, the parallel block of GPT-NeoX and Pythia: attention and MLP
// both read the input of the block, each with a norm of its own.
Tensor3 neox_block([[maybe_unused]] const AttentionLayer& self_attn,
                   [[maybe_unused]] const GatedMlp& mlp,
                   [[maybe_unused]] const RMSNorm& attention_norm,
                   [[maybe_unused]] const RMSNorm& mlp_norm,
                   [[maybe_unused]] const Tensor3& hidden_states,
                   [[maybe_unused]] const AttentionInputs& inputs) {
    TODO("neox_block");
}

// Exercise 8.6 — write gemma_block: build a SandwichBlock from the four norm weights of a
// Gemma 2 checkpoint.
SandwichBlock gemma_block([[maybe_unused]] const AttentionLayer& self_attn,
                          [[maybe_unused]] const GatedMlp& mlp,
                          [[maybe_unused]] const GemmaWeights& weights,
                          [[maybe_unused]] Real eps) {
    TODO("gemma_block");
}

// Exercise 8.7 — write deep_norm_block: post-norm with a scaled residual stream,
// x = norm(alpha x + f(x)), first for attention, then for the MLP. (DeepNet also scales the
// initialization of some weights; that is not part of this exercise.)
Tensor3 deep_norm_block([[maybe_unused]] const PostNormBlock& block,
                        [[maybe_unused]] Real alpha,
                        [[maybe_unused]] const Tensor3& hidden_states,
                        [[maybe_unused]] const AttentionInputs& inputs) {
    TODO("deep_norm_block");
}

}  // namespace exercise
