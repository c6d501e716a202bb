#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/09_full_model/exercise.hpp"

namespace exercise {

// Exercise 9.1 — the RMS of (1, 7) is sqrt((1 + 49) / 2) = 5, so the normalized vector is
// (0.2 * 10, 1.4 * 5) = (2, 7). Each logit is its dot product with a row of the embedding.
Vector predicted_logits() { return {2, 7, -5}; }

// Exercise 9.2 — ln 65536 = 16 ln 2 = 11.09; the mean of ln 2, 2 ln 2 and 3 ln 2 is 2 ln 2.
Vector predicted_losses() { return {Real(11.09), Real(1.386)}; }

// Exercise 9.3 — attention 4096 + 2 * 2048 + 4096, MLP 3 * 8192, two norms of 64: 36,992 for a
// layer. Two layers, an embedding of 64,000 and the final norm of 64. An untied head adds
// 64,000.
Vector predicted_parameter_counts() { return {138048, 202048}; }

// Exercise 9.4 — positions 3 and 4 attend to position 2; positions 0 and 1 do not.
Vector predicted_changes() { return {0, 0, 1, 1, 1}; }

// Exercise 9.5 — the logits of position t predict the token at position t + 1.
double next_token_loss(const Tensor3& logits, const IdMatrix& input_ids) {
    const std::size_t num_predictions = logits.shape(1) - 1;
    const Matrix rows = xt::view(logits, 0);
    double sum = 0;
    for (std::size_t t = 0; t < num_predictions; ++t) {
        double exponentials = 0;
        const double highest = xt::amax(xt::view(rows, t))();
        for (std::size_t v = 0; v < rows.shape(1); ++v)
            exponentials += std::exp(double(rows(t, v)) - highest);
        const auto target = static_cast<std::size_t>(input_ids(0, t + 1));
        sum += highest + std::log(exponentials) - double(rows(t, target));
    }
    return sum / static_cast<double>(num_predictions);
}

// Exercise 9.6 — the residual stream is not normalized between layers. The final norm is
// applied once, after the last layer.
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);
    Tensor3 hidden_states = model.embed(input_ids);  // (B, T, C)
    for (const PreNormBlock& layer : model.layers)
        hidden_states = layer(hidden_states, inputs).hidden_states;
    const Linear head{model.head(), std::nullopt};
    return head(model.norm(hidden_states));
}

// Exercise 9.7 — Llama-3-8B: 14.96 GiB of parameters and 1 GiB of KV cache, 15.96 GiB in all.
std::uint64_t memory_bytes(const Config& config, std::size_t bytes_per_element,
                           std::size_t num_tokens) {
    const Config full = validate_model(config);  // with head_dim
    return count_parameters(full).total() * bytes_per_element +
           num_tokens * kv_cache_bytes_per_token(full.num_hidden_layers,
                                                 full.num_key_value_heads, full.head_dim,
                                                 bytes_per_element);
}

namespace {

LayerWeights load_layer(const SafeTensors& file, const Config& config, std::size_t n) {
    const std::size_t C = config.hidden_size, F = config.intermediate_size;
    const std::size_t query_width = config.num_attention_heads * config.head_dim;
    const std::size_t key_width = config.num_key_value_heads * config.head_dim;
    const std::string layer = "model.layers." + std::to_string(n) + ".";
    const auto matrix = [&](const std::string& name, std::size_t rows, std::size_t columns) {
        return file.read(layer + name + ".weight", {rows, columns});
    };
    LayerWeights weights;
    weights.q_proj = matrix("self_attn.q_proj", query_width, C);
    weights.k_proj = matrix("self_attn.k_proj", key_width, C);
    weights.v_proj = matrix("self_attn.v_proj", key_width, C);
    weights.o_proj = matrix("self_attn.o_proj", C, query_width);
    weights.gate_proj = matrix("mlp.gate_proj", F, C);
    weights.up_proj = matrix("mlp.up_proj", F, C);
    weights.down_proj = matrix("mlp.down_proj", C, F);
    weights.input_layernorm = file.read(layer + "input_layernorm.weight", {C});
    weights.post_attention_layernorm =
        file.read(layer + "post_attention_layernorm.weight", {C});
    return weights;
}

}  // namespace

// Exercise 9.8 — the file is in Hugging Face's format: no rows have to be reordered.
Weights load_weights(const SafeTensors& file, const Config& config) {
    const std::size_t C = config.hidden_size;
    Weights weights;
    weights.embed_tokens = file.read("model.embed_tokens.weight", {config.vocab_size, C});
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        weights.layers.push_back(load_layer(file, config, n));
    weights.norm = file.read("model.norm.weight", {C});
    return weights;
}

namespace {

Tensor3 apply_linear(const Matrix& weight, const Tensor3& inputs) {
    return Linear{weight, std::nullopt}(inputs);
}

}  // namespace

// Exercise 9.9 — queries and keys are rotated, values are not.
Tensor3 attention_update(const LayerWeights& layer, const Config& config,
                         const Tensor3& hidden_states) {
    const std::size_t seq_len = hidden_states.shape(1);
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    const Tensor3 input = RMSNorm{layer.input_layernorm, config.rms_norm_eps}(hidden_states);
    const Tensor4 queries = split_heads(apply_linear(layer.q_proj, input), H);
    const Tensor4 keys = split_heads(apply_linear(layer.k_proj, input), Hkv);
    const Tensor4 values = split_heads(apply_linear(layer.v_proj, input), Hkv);

    const IdMatrix positions = position_ids(1, seq_len);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(config.head_dim, config.rope_theta), seq_len);
    const Tensor4 mask = expand_mask(causal_mask(seq_len, seq_len), 1);
    const AttentionOutput attention =
        grouped_query_attention(apply_rotary_embedding(queries, table, positions),
                                apply_rotary_embedding(keys, table, positions), values, mask);
    return apply_linear(layer.o_proj, merge_heads(attention.context));
}

// Exercise 9.10 — the activation is applied to the gate.
Tensor3 mlp_update(const LayerWeights& layer, const Config& config,
                   const Tensor3& hidden_states) {
    const RMSNorm norm{layer.post_attention_layernorm, config.rms_norm_eps};
    const Tensor3 input = norm(hidden_states);
    const Tensor3 gate = apply_linear(layer.gate_proj, input);  // (1, T, F)
    const Tensor3 up = apply_linear(layer.up_proj, input);      // (1, T, F)
    return apply_linear(layer.down_proj, activate(SiLU, gate) * up);
}

// Exercise 9.11 — the input of the MLP is the residual stream after attention.
Vector next_token_logits(const Weights& weights, const Config& config,
                         const std::vector<Id>& ids) {
    require(!ids.empty(), "next_token_logits: no ids");
    Tensor3 hidden_states = xt::zeros<Real>({std::size_t{1}, ids.size(), config.hidden_size});
    for (std::size_t t = 0; t < ids.size(); ++t) {
        const auto id = static_cast<std::size_t>(ids[t]);
        require(ids[t] >= 0 && id < config.vocab_size,
                "next_token_logits: there is no token {} in a vocabulary of {}", ids[t],
                config.vocab_size);
        xt::view(hidden_states, 0, t) = xt::view(weights.embed_tokens, id);
    }
    for (const LayerWeights& layer : weights.layers) {
        hidden_states = hidden_states + attention_update(layer, config, hidden_states);
        hidden_states = hidden_states + mlp_update(layer, config, hidden_states);
    }
    const Tensor3 last =  // (1, 1, C)
        xt::view(hidden_states, xt::all(), xt::range(ids.size() - 1, ids.size()), xt::all());
    const Tensor3 normalized = RMSNorm{weights.norm, config.rms_norm_eps}(last);
    return reshape(apply_linear(weights.embed_tokens, normalized), {config.vocab_size});
}

// Exercise 9.12 — one forward pass for each new token.
std::vector<Id> greedy_ids(const Weights& weights, const Config& config,
                           const std::vector<Id>& prompt, std::size_t count) {
    require(prompt.size() + count <= config.max_position_embeddings,
            "greedy_ids: {} and {} tokens exceed max_position_embeddings of {}", prompt.size(),
            count, config.max_position_embeddings);
    std::vector<Id> ids = prompt;
    for (std::size_t n = 0; n < count; ++n) {
        const Vector logits = next_token_logits(weights, config, ids);
        ids.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    return {ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end()};
}

}  // namespace exercise
