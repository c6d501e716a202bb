#include "chapters/09_full_model/exercise.hpp"

namespace exercise {

// Exercise 9.1 — a transpose turns rows into columns; a reshape keeps the order of the elements
// in memory (chapter 03).
Matrix tied_logits(const Matrix& hidden_states, const Matrix& embed_tokens) {
    return xt::linalg::dot(hidden_states, xt::transpose(embed_tokens));
}

// Exercise 9.2 — the residual stream of a pre-norm model is not normalized: the final norm
// comes before the head.
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);
    const Tensor3 last_hidden_state =  // (B, T, C)
        run_layers(model.layers, model.embed(input_ids), inputs).last_hidden_state;
    const Linear head{model.head(), std::nullopt};
    return head(model.norm(last_hidden_state));
}

// Exercise 9.3 — k_proj has Hkv heads, and the rows are reordered within each head.
Projections from_meta(const Projections& stored, const Config& config) {
    Projections loaded = stored;
    loaded.q_proj = interleaved_to_split_half(stored.q_proj, config.num_attention_heads);
    loaded.k_proj = interleaved_to_split_half(stored.k_proj, config.num_key_value_heads);
    return loaded;
}

// Exercise 9.4 — rms_norm_eps of the configuration is the epsilon that the model was trained
// with.
RMSNorm make_checkpoint_norm(const Config& config, const Vector& weight) {
    return {weight, config.rms_norm_eps};
}

// Exercise 9.5 — Llama-3-8B: 14.96 GiB of parameters and 1 GiB of KV cache, 15.96 GiB in all.
std::uint64_t memory_bytes(const Config& config, std::size_t bytes_per_element,
                           std::size_t num_tokens) {
    const Config full = validate_model(config);  // with head_dim
    return count_parameters(full).total() * bytes_per_element +
           num_tokens * kv_cache_bytes_per_token(full.num_hidden_layers,
                                                 full.num_key_value_heads, full.head_dim,
                                                 bytes_per_element);
}

// Exercise 9.6 — biases has no entry for o_proj.
Projections qwen2_projections(const StoredAttention& stored) {
    const auto linear = [&](const std::string& name) {
        Linear result{stored.weights.at(name + ".weight"), std::nullopt};
        if (stored.biases.contains(name + ".bias"))
            result.bias = stored.biases.at(name + ".bias");
        return result;
    };
    return {linear("q_proj"), linear("k_proj"), linear("v_proj"), linear("o_proj")};
}

// Exercise 9.7 — norm and head treat each token separately, so the other positions are not
// needed.
Matrix last_logits(const Model& model, const Tensor3& hidden_states) {
    const std::size_t last = hidden_states.shape(1) - 1;
    const Matrix rows = xt::view(hidden_states, xt::all(), last);  // (B, C)
    const Matrix normalized = model.norm(rows);                    // (B, C)
    return xt::linalg::dot(normalized, xt::transpose(model.head()));
}

}  // namespace exercise
