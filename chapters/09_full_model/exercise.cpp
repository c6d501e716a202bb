#include "chapters/09_full_model/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 9.1 — find the bug. The shapes fit, for every vocabulary and every hidden size. The
// model behaves as if each token's vector had been torn up and dealt out.
Matrix tied_logits(const Matrix& rows, const Matrix& embed_tokens) {
    const auto [vocab_size, hidden_size] = dims(embed_tokens);
    const Matrix head = reshape(embed_tokens, {hidden_size, vocab_size});
    return xt::linalg::dot(rows, head);
}

// Exercise 9.2 — find the bug. The likeliest token is mostly the right one. The probabilities
// are too certain, and the more so the deeper the model is.
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const Placement placement = model.placement(batch_size, seq_len);
    Tensor3 stream = model.embed(input_ids);
    for (const PreNormBlock& layer : model.layers) stream = layer(stream, placement);
    const Linear head{model.lm_head ? *model.lm_head : model.embed_tokens, std::nullopt};
    return head(stream);
}

// Exercise 9.3 — find the bug. It loads Llama-2-7B, in which H = Hkv. Llama-2-70B, whose key
// heads are shared, writes nonsense.
Projections from_meta(const Projections& stored, const ModelConfig& config) {
    Projections loaded = stored;
    loaded.q_proj = interleaved_to_split_half(stored.q_proj, config.num_attention_heads);
    loaded.k_proj = interleaved_to_split_half(stored.k_proj, config.num_attention_heads);
    return loaded;
}

// Exercise 9.4 — find the bug. Llama 3 comes out right. Qwen3 is off wherever the stream is
// small.
RMSNorm norm_of([[maybe_unused]] const ModelConfig& config, const Vector& weight) {
    const Real eps = Real(1e-5);
    return {weight, eps};
}

// Exercise 9.5 — write memory_bytes: every parameter, and a cache for so many tokens. Does
// Llama-3-8B with its full context of 8192 fit into 16 GiB, at two bytes a number?
std::size_t memory_bytes([[maybe_unused]] const ModelConfig& config,
                         [[maybe_unused]] std::size_t bytes_per_number,
                         [[maybe_unused]] std::size_t num_tokens) {
    TODO("memory_bytes");
}

// Exercise 9.6 — write qwen2_projections: weights for q, k, v and o, biases for those that have
// one.
Projections qwen2_projections([[maybe_unused]] const StoredAttention& stored) {
    TODO("qwen2_projections");
}

// Exercise 9.7 — write last_logits. To go on with a text you need the last position only, and
// with a vocabulary of 128256 the head is worth saving. Norm and multiply B rows, not B*T.
Matrix last_logits([[maybe_unused]] const Model& model,
                   [[maybe_unused]] const Tensor3& stream) {
    TODO("last_logits");
}

}  // namespace exercise
