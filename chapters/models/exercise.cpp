#include "chapters/models/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise M.1 — predict: both models have C = 64, F = 256, L = 2, four heads of 16 and a
// vocabulary of 1000. How many parameters has an OLMo 2 with two key/value heads and a head of
// its own, and how many a GPT-2 with 128 positions?
Vector predicted_parameters() {
    TODO("predicted_parameters");
    // return {?, ?};
}

// Exercise M.2 — predict: four copies of a Command R7B have one wrong value in config.json.
// Their logits, compared with the right ones: (a) all multiplied by the same number; (b) right
// for positions 0 to 5, wrong from 6 on; (c) right for position 0, wrong from 1 on; (d) wrong
// for all positions, by different numbers. Which key is it? 1: layer_norm_eps, 2: logit_scale,
// 3: rope_theta, 4: sliding_window.
Vector predicted_keys() {
    TODO("predicted_keys");
    // return {?, ?, ?, ?};
}

// Exercise M.3 — find the bug. This GPT-2 loads, and its text is fluent, but its logits are
// off in the fourth digit.
const Family& gpt2_again() {
    static const Family family = [] {
        Family result = gpt2_family();
        result.build = [](FamilyConfig& config) {
            gpt2_family().build(config);
            for (LayerConfig& layer : config.layers)
                mlp_of(layer)->activation = {"gelu_new", gelu, gelu_derivative};
        };
        return result;
    }();
    return family;
}

// Exercise M.4 — write pebble_family: a Llama whose code says this. RoPE rotates adjacent
// features. RMSNorm multiplies by 1 + w. The embeddings are multiplied by √C, and the head is
// the embedding. The MLP is gated, with the tanh approximation of GELU. Every layer sees all
// tokens. Its config.json: {"model_type": "pebble", "dim": 20, "ffn_dim": 14, "n_layers": 2,
// "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "vocab_size": 31, "max_seq_len": 64,
// "norm_eps": 0.001, "rope_theta": 500.0}. Its tensors: tokens.weight, final_norm.weight, and
// stack.0.norm_a.weight, stack.0.wq.weight, .wk, .wv, .wo, stack.0.norm_f.weight,
// stack.0.mlp.gate.weight, .mlp.up, .mlp.down, and the same for stack.1.
const Family& pebble_family() { TODO("pebble_family"); }

}  // namespace exercise
