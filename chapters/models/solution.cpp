#include "chapters/models/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise M.1 — OLMo 2: q and o 64 · 64 each, k and v 64 · 32 each, the QK norm 64 + 32, two
// norms of 64, the MLP 3 · 64 · 256: 61,664 for a layer. Two layers, embedding and head of
// 64,000 each, the final norm of 64. GPT-2: 4 · 64 · 64 + 256 biases, the MLP 2 · 64 · 256 +
// 320 biases, two norms of 128: 49,984 for a layer. Two layers, an embedding of 64,000,
// positions of 8,192, the final norm of 128.
Vector predicted_parameters() { return {251392, 172288}; }

// Exercise M.2 — logit_scale multiplies the logits. A window of other width changes nothing for
// tokens that fit into both. Position 0 is rotated by an angle of 0 whatever theta is. eps
// changes every norm.
Vector predicted_keys() { return {2, 4, 3, 1}; }

// Exercise M.3 — GPT-2's gelu_new is the approximation with tanh. (In PyTorch, nn.GELU() is the
// exact function, and approximate="tanh" this one.)
const Family& gpt2_again() {
    static const Family family = [] {
        Family result = gpt2_family();
        result.build = [](FamilyConfig& config) {
            gpt2_family().build(config);
            for (LayerConfig& layer : config.layers)
                mlp_of(layer)->activation = {"gelu_new", gelu_tanh, gelu_tanh_derivative};
        };
        return result;
    }();
    return family;
}

// Exercise M.4 — names of tensors and keys, the layout of the rows, and four choices.
const Family& pebble_family() {
    static const Family family = [] {
        FamilyLayerNames names;
        names.attention_norm = "norm_a";
        names.q_proj = "wq";
        names.k_proj = "wk";
        names.v_proj = "wv";
        names.o_proj = "wo";
        names.ffn_norm = "norm_f";
        names.mlp = {"mlp.gate", "mlp.up", "mlp.down"};
        return Family{.model_type = "pebble",
                      .architecture = "PebbleForCausalLM",
                      .gguf_architecture = "",  // llama.cpp has none
                      .names = names,
                      .gguf_names = gguf_layer_names(),
                      .model_names = {"tokens", "stack.", "final_norm", "", {}},
                      .layout = {.rope = RopeLayout::interleaved, .norm_offset = 1},
                      .attribute_map = {{"hidden_size", "dim"},
                                        {"intermediate_size", "ffn_dim"},
                                        {"num_hidden_layers", "n_layers"},
                                        {"num_attention_heads", "n_heads"},
                                        {"num_key_value_heads", "n_kv_heads"},
                                        {"max_position_embeddings", "max_seq_len"},
                                        {"rms_norm_eps", "norm_eps"}},
                      .defaults = {.tie_word_embeddings = true},
                      .build = [](FamilyConfig& config) {
                          config.embedding_multiplier = std::sqrt(Real(config.hidden_size));
                          for (LayerConfig& layer : config.layers)
                              mlp_of(layer)->activation = GELUTanh;
                      }};
    }();
    return family;
}

}  // namespace exercise
