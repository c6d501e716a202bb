#include "chapters/08_pre_vs_post_norm/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 8.1 — predict: the residual stream after two sublayers in pre-norm (row 0) and in
// post-norm (row 1). x0 is (2, 2), the sublayers output (-1, 5) and (-7.2, -0.4). The norms
// have no weights, and eps is 0.
Matrix predicted_stream() {
    TODO("predicted_stream");
    // return {{?, ?}, {?, ?}};
}

// Exercise 8.2 — predict: the embedding and the outputs of six sublayers have an RMS of 1 and
// are orthogonal to each other. What is the RMS of the pre-norm residual stream after the six
// additions? By which factor has post-norm, with a norm after each, multiplied the embedding?
Vector predicted_depth() {
    TODO("predicted_depth");
    // return {?, ?};
}

// Exercise 8.3 — predict: the input of a block has an RMS of 5, and all weights of o_proj and
// down_proj are 0. What is the RMS of the output in pre-norm, post-norm, res-post-norm,
// sandwich norm and the parallel block?
Vector predicted_output_rms() {
    TODO("predicted_output_rms");
    // return {?, ?, ?, ?, ?};
}

// Exercise 8.4 — find the bug. A pre-norm block, translated line by line from Python. The
// output is wrong, its shape is right.
Tensor3 translated_block(const PreNormBlock& block, const Tensor3& hidden_states,
                         const AttentionInputs& inputs) {
    Tensor3 states = hidden_states;
    for (const bool is_attention : {true, false}) {
        const Tensor3& residual = states;
        states = is_attention ? block.attention_norm(states) : block.ffn_norm(states);
        states =
            is_attention ? block.self_attn(states, inputs).hidden_states : block.mlp(states);
        states = residual + states;
    }
    return states;
}

// Exercise 8.5 — find the bug. The loop adds each sublayer output to the residual stream just
// before the next norm, in one pass over memory, as fast implementations do. The result is not
// that of the same layers, one after the other.
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
    return decoder.final_norm(residual);
}

// Exercise 8.6 — write neox_block, the parallel block of GPT-NeoX and Pythia: attention and MLP
// both read the input of the block, each with a norm of its own.
Tensor3 neox_block([[maybe_unused]] const AttentionLayer& self_attn,
                   [[maybe_unused]] const GatedMlp& mlp,
                   [[maybe_unused]] const RMSNorm& attention_norm,
                   [[maybe_unused]] const RMSNorm& mlp_norm,
                   [[maybe_unused]] const Tensor3& hidden_states,
                   [[maybe_unused]] const AttentionInputs& inputs) {
    TODO("neox_block");
}

// Exercise 8.7 — write gemma_block: build a SandwichBlock from the four norm weights of a
// Gemma 2 checkpoint.
SandwichBlock gemma_block([[maybe_unused]] const AttentionLayer& self_attn,
                          [[maybe_unused]] const GatedMlp& mlp,
                          [[maybe_unused]] const GemmaWeights& weights,
                          [[maybe_unused]] Real eps) {
    TODO("gemma_block");
}

// Exercise 8.8 — write deep_norm_block: post-norm with a scaled residual stream,
// x = norm(alpha x + f(x)), first for attention, then for the MLP. (DeepNet also scales the
// initialization of some weights; that is not part of this exercise.)
Tensor3 deep_norm_block([[maybe_unused]] const PostNormBlock& block,
                        [[maybe_unused]] Real alpha,
                        [[maybe_unused]] const Tensor3& hidden_states,
                        [[maybe_unused]] const AttentionInputs& inputs) {
    TODO("deep_norm_block");
}

}  // namespace exercise
