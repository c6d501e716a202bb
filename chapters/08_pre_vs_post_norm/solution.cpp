#include "chapters/08_pre_vs_post_norm/exercise.hpp"

namespace exercise {

// Exercise 8.1 — the skip leaves the road before the norm: x + f(norm(x)).
Tensor3 with_a_skip(const PreNormBlock& block, const Tensor3& hidden_states,
                    const Placement& placement) {
    const Tensor3 attended =
        hidden_states + block.attend(block.attention_norm(hidden_states), placement);
    return attended + block.mlp(block.ffn_norm(attended));
}

// Exercise 8.2 — the two norms have weights of their own. They are equal only before training.
Tensor3 with_two_norms(const PreNormBlock& block, const Tensor3& hidden_states,
                       const Placement& placement) {
    const Tensor3 attended =
        hidden_states + block.attend(block.attention_norm(hidden_states), placement);
    return attended + block.mlp(block.ffn_norm(attended));
}

// Exercise 8.3 — the MLP adds to what attention left, not to what came before it.
Tensor3 with_two_residuals(const PreNormBlock& block, const Tensor3& hidden_states,
                           const Placement& placement) {
    const Tensor3 attended =
        hidden_states + block.attend(block.attention_norm(hidden_states), placement);
    return attended + block.mlp(block.ffn_norm(attended));
}

// Exercise 8.4 — the road was never normalised, so it must be at its end.
Tensor3 through_the_model(const Decoder& decoder, const Tensor3& hidden_states,
                          const Placement& placement) {
    Tensor3 stream = hidden_states;
    for (const PreNormBlock& layer : decoder.layers) stream = layer(stream, placement);
    return decoder.final_norm(stream);
}

// Exercise 8.5 — the MLP does not see what attention found.
Tensor3 neox_block(const Sublayers& sublayers, const RMSNorm& attention_norm,
                   const RMSNorm& mlp_norm, const Tensor3& hidden_states,
                   const Placement& placement) {
    return hidden_states + sublayers.attend(attention_norm(hidden_states), placement) +
           sublayers.mlp(mlp_norm(hidden_states));
}

// Exercise 8.6 — here post_attention_layernorm does stand behind attention. In a Llama
// checkpoint the same name means the norm before the MLP.
SandwichBlock gemma_block(const Sublayers& sublayers, const GemmaWeights& weights, Real eps) {
    return {sublayers, gemma_norm(weights.input_layernorm, eps),
            gemma_norm(weights.post_attention_layernorm, eps),
            gemma_norm(weights.pre_feedforward_layernorm, eps),
            gemma_norm(weights.post_feedforward_layernorm, eps)};
}

// Exercise 8.7 — a larger alpha lets the norm take less away from the road.
Tensor3 deep_norm(const PostNormBlock& block, Real alpha, const Tensor3& hidden_states,
                  const Placement& placement) {
    const Tensor3 attended =
        block.attention_norm(hidden_states * alpha + block.attend(hidden_states, placement));
    return block.ffn_norm(attended * alpha + block.mlp(attended));
}

}  // namespace exercise
