#include "chapters/08_pre_vs_post_norm/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 8.1 — find the bug. The model trains, but badly, and worse the deeper it is. Its
// stream has the same size everywhere, which a pre-norm model's has not.
Tensor3 with_a_skip(const PreNormBlock& block, const Tensor3& hidden_states,
                    const Placement& placement) {
    const Tensor3 normalized = block.attention_norm(hidden_states);
    const Tensor3 attended = normalized + block.attend(normalized, placement);
    const Tensor3 normalized_again = block.ffn_norm(attended);
    return normalized_again + block.mlp(normalized_again);
}

// Exercise 8.2 — find the bug. Freshly initialised it is right. With a checkpoint's weights it
// is not.
Tensor3 with_two_norms(const PreNormBlock& block, const Tensor3& hidden_states,
                       const Placement& placement) {
    const RMSNorm& norm = block.attention_norm;
    const Tensor3 attended = hidden_states + block.attend(norm(hidden_states), placement);
    return attended + block.mlp(norm(attended));
}

// Exercise 8.3 — find the bug. The formula was on a slide: y = x + MLP(LN(x +
// Attention(LN(x)))).
Tensor3 with_two_residuals(const PreNormBlock& block, const Tensor3& hidden_states,
                           const Placement& placement) {
    const Tensor3 attended =
        hidden_states + block.attend(block.attention_norm(hidden_states), placement);
    return hidden_states + block.mlp(block.ffn_norm(attended));
}

// Exercise 8.4 — find the bug. Every block is right. The output layer gets numbers that are
// larger the deeper the model is, and its probabilities are all but certain.
Tensor3 through_the_model(const Decoder& decoder, const Tensor3& hidden_states,
                          const Placement& placement) {
    Tensor3 stream = hidden_states;
    for (const PreNormBlock& layer : decoder.layers) stream = layer(stream, placement);
    return stream;
}

// Exercise 8.5 — write neox_block: parallel, as GPT-NeoX and Pythia have it. Both functions
// read the stream, each through a norm of its own.
Tensor3 neox_block([[maybe_unused]] const Sublayers& sublayers,
                   [[maybe_unused]] const RMSNorm& attention_norm,
                   [[maybe_unused]] const RMSNorm& mlp_norm,
                   [[maybe_unused]] const Tensor3& hidden_states,
                   [[maybe_unused]] const Placement& placement) {
    TODO("neox_block");
}

// Exercise 8.6 — write gemma_block: put the four norms of a Gemma 2 checkpoint into a sandwich.
SandwichBlock gemma_block([[maybe_unused]] const Sublayers& sublayers,
                          [[maybe_unused]] const GemmaWeights& weights,
                          [[maybe_unused]] Real eps) {
    TODO("gemma_block");
}

// Exercise 8.7 — write deep_norm: post-norm with a wider road, x = norm(alpha x + f(x)), for
// attention and then for the MLP. (DeepNet also starts some weights smaller. Here only alpha.)
Tensor3 deep_norm([[maybe_unused]] const PostNormBlock& block, [[maybe_unused]] Real alpha,
                  [[maybe_unused]] const Tensor3& hidden_states,
                  [[maybe_unused]] const Placement& placement) {
    TODO("deep_norm");
}

}  // namespace exercise
