#include "chapters/09_full_model/exercise.hpp"

namespace exercise {

// Exercise 9.1 — a transpose turns rows into columns. A reshape keeps the reading order
// (chapter 03).
Matrix tied_logits(const Matrix& rows, const Matrix& embed_tokens) {
    return xt::linalg::dot(rows, xt::transpose(embed_tokens));
}

// Exercise 9.2 — the road was never normalised: the final norm comes before the head.
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const Placement placement = model.placement(batch_size, seq_len);
    Tensor3 stream = model.embed(input_ids);
    for (const PreNormBlock& layer : model.layers) stream = layer(stream, placement);
    const Linear head{model.lm_head ? *model.lm_head : model.embed_tokens, std::nullopt};
    return head(model.norm(stream));
}

// Exercise 9.3 — k_proj has Hkv heads, and each is reordered within itself.
Projections from_meta(const Projections& stored, const ModelConfig& config) {
    Projections loaded = stored;
    loaded.q_proj = interleaved_to_split_half(stored.q_proj, config.num_attention_heads);
    loaded.k_proj = interleaved_to_split_half(stored.k_proj, config.num_key_value_heads);
    return loaded;
}

// Exercise 9.4 — the configuration says which eps a model was trained with.
RMSNorm norm_of(const ModelConfig& config, const Vector& weight) {
    return {weight, config.rms_norm_eps};
}

// Exercise 9.5 — for Llama-3-8B 14.96 GiB of weights and 1 GiB of cache: 15.96 GiB, just so.
std::size_t memory_bytes(const ModelConfig& config, std::size_t bytes_per_number,
                         std::size_t num_tokens) {
    const ModelConfig full = complete(config);
    return count_parameters(full).total() * bytes_per_number +
           num_tokens * kv_cache_bytes_per_token(full.num_hidden_layers,
                                                 full.num_key_value_heads, full.head_dim,
                                                 bytes_per_number);
}

// Exercise 9.6 — o_proj has none, and contains says so.
Projections qwen2_projections(const StoredAttention& stored) {
    const auto linear = [&](const std::string& name) {
        Linear result{stored.weights.at(name + ".weight"), std::nullopt};
        if (stored.biases.contains(name + ".bias"))
            result.bias = stored.biases.at(name + ".bias");
        return result;
    };
    return {linear("q_proj"), linear("k_proj"), linear("v_proj"), linear("o_proj")};
}

// Exercise 9.7 — a norm and a head look at one token at a time, so the others can stay away.
Matrix last_logits(const Model& model, const Tensor3& stream) {
    const std::size_t last = stream.shape(1) - 1;
    const Matrix rows = xt::view(stream, xt::all(), last);  // (B, C)
    const Matrix normalized = model.norm(rows);             // (B, C)
    const Matrix& head = model.lm_head ? *model.lm_head : model.embed_tokens;
    return xt::linalg::dot(normalized, xt::transpose(head));
}

}  // namespace exercise
