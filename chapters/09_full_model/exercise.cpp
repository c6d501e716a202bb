#include "chapters/09_full_model/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 9.1 — find the bug. The shapes match for every vocabulary and hidden size, but each
// logit mixes features of the embeddings of several tokens.
Matrix tied_logits(const Matrix& hidden_states, const Matrix& embed_tokens) {
    const auto [vocab_size, hidden_size] = dims(embed_tokens);
    const Matrix head = reshape(embed_tokens, {hidden_size, vocab_size});  // (C, V)
    return xt::linalg::dot(hidden_states, head);
}

// Exercise 9.2 — find the bug. The most likely token is often the right one, but the
// probabilities are too close to 0 and 1, the more so the deeper the model is.
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);
    const Tensor3 last_hidden_state =  // (B, T, C)
        run_layers(model.layers, model.embed(input_ids), inputs).last_hidden_state;
    const Linear head{model.head(), std::nullopt};
    return head(last_hidden_state);
}

// Exercise 9.3 — find the bug. It loads Llama-2-7B correctly, where Hkv = H. Llama-2-70B, with
// grouped-query attention, generates nonsense.
Projections from_meta(const Projections& stored, const Config& config) {
    Projections loaded = stored;
    loaded.q_proj = interleaved_to_split_half(stored.q_proj, config.num_attention_heads);
    loaded.k_proj = interleaved_to_split_half(stored.k_proj, config.num_attention_heads);
    return loaded;
}

// Exercise 9.4 — find the bug. The norm of a loaded model: Llama 3 is correct, Qwen3 is wrong
// for tokens whose hidden states have a small RMS.
RMSNorm make_checkpoint_norm([[maybe_unused]] const Config& config, const Vector& weight) {
    const Real eps = Real(1e-5);
    return {weight, eps};
}

// Exercise 9.5 — write memory_bytes: all parameters, and a KV cache of num_tokens tokens. Does
// Llama-3-8B with its full context of 8192 tokens fit into 16 GiB, at two bytes per element?
std::uint64_t memory_bytes([[maybe_unused]] const Config& config,
                           [[maybe_unused]] std::size_t bytes_per_element,
                           [[maybe_unused]] std::size_t num_tokens) {
    TODO("memory_bytes");
}

// Exercise 9.6 — write qwen2_projections: the weights of q, k, v and o, and the biases that
// the checkpoint has.
Projections qwen2_projections([[maybe_unused]] const StoredAttention& stored) {
    TODO("qwen2_projections");
}

// Exercise 9.7 — write last_logits. Generation needs the logits of the last position only, and
// with a vocabulary of 128256 the head is a large part of the FLOPs. Apply norm and head to B
// rows instead of B*T.
Matrix last_logits([[maybe_unused]] const Model& model,
                   [[maybe_unused]] const Tensor3& hidden_states) {
    TODO("last_logits");
}

}  // namespace exercise
