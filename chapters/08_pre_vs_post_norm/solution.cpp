#include "chapters/08_pre_vs_post_norm/exercise.hpp"

namespace exercise {

// Exercise 8.1 — in post-norm both sums, (1, 7) and (-7, 1), have an RMS of 5.
Matrix predicted_stream() { return {{Real(-6.2), Real(6.6)}, {Real(-1.4), Real(0.2)}}; }

// Exercise 8.2 — the squares of orthogonal vectors add: the RMS is √7. In post-norm each sum of
// two orthogonal terms of RMS 1 has an RMS of √2, so the factor is (1/√2)^6 = 1/8.
Vector predicted_depth() { return {Real(2.646), Real(0.125)}; }

// Exercise 8.3 — the sublayers output zeros, so the sum is the input. Only post-norm normalizes
// the sum; the norm of a zero output in res-post-norm and sandwich norm is zero.
Vector predicted_output_rms() { return {5, 1, 5, 5, 5}; }

// Exercise 8.4 — a copy: a reference to `states` refers to the new values after the assignment,
// so the sum was twice the sublayer's output.
Tensor3 translated_block(const PreNormBlock& block, const Tensor3& hidden_states,
                         const AttentionInputs& inputs) {
    Tensor3 states = hidden_states;
    for (const bool is_attention : {true, false}) {
        const Tensor3 residual = states;
        states = is_attention ? block.attention_norm(states) : block.ffn_norm(states);
        states =
            is_attention ? block.self_attn(states, inputs).hidden_states : block.mlp(states);
        states = residual + states;
    }
    return states;
}

// Exercise 8.5 — the MLP output of the last layer has not been added when the loop ends.
Tensor3 decoder_forward(const Decoder& decoder, const Tensor3& hidden_states,
                        const AttentionInputs& inputs) {
    Tensor3 residual = hidden_states;
    Tensor3 output = xt::zeros_like(hidden_states);  // of the last sublayer, not yet added
    for (const PreNormBlock& layer : decoder.layers) {
        residual += output;
        output = layer.self_attn(layer.attention_norm(residual), inputs).hidden_states;
        residual += output;
        output = layer.mlp(layer.ffn_norm(residual));
    }
    return decoder.final_norm(residual + output);
}

// Exercise 8.6 — both norms read the input of the block, so the MLP does not depend on the
// attention output.
Tensor3 neox_block(const AttentionLayer& self_attn, const GatedMlp& mlp,
                   const RMSNorm& attention_norm, const RMSNorm& mlp_norm,
                   const Tensor3& hidden_states, const AttentionInputs& inputs) {
    return hidden_states + self_attn(attention_norm(hidden_states), inputs).hidden_states +
           mlp(mlp_norm(hidden_states));
}

// Exercise 8.7 — in Gemma 2, post_attention_layernorm is applied to the attention output. In a
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

// Exercise 8.8 — the larger alpha is, the less f(x) changes the direction of the normalized
// sum.
Tensor3 deep_norm_block(const PostNormBlock& block, Real alpha, const Tensor3& hidden_states,
                        const AttentionInputs& inputs) {
    const Tensor3 attention_output = block.self_attn(hidden_states, inputs).hidden_states;
    const Tensor3 after_attention =
        block.attention_norm(hidden_states * alpha + attention_output);
    return block.ffn_norm(after_attention * alpha + block.mlp(after_attention));
}

}  // namespace exercise
