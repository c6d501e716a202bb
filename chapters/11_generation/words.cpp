#include "chapters/11_generation/words.hpp"

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/11_generation/generation.hpp"

namespace llm {
namespace {

constexpr std::size_t layer_index = 2, head_index = 4;

Matrix first_sequence(const Tensor3& states) { return xt::view(states, 0); }  // (1, T, N)

Tensor3 all_layers(const std::vector<Tensor3>& hidden_states) {  // L + 1 times (1, T, C)
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states.front());
    Tensor3 result = xt::zeros<Real>({hidden_states.size(), seq_len, hidden_size});
    for (std::size_t n = 0; n < hidden_states.size(); ++n)
        xt::view(result, n) = first_sequence(hidden_states[n]);
    return result;
}

// The rows of the weight that make one head.
Matrix head_weight(const Linear& projection, std::size_t head_dim) {
    const std::size_t begin = head_index * head_dim;
    return xt::view(projection.weight, xt::range(begin, begin + head_dim), xt::all());
}

}  // namespace

std::string word_of(const Tokenizer& tokenizer, Id id) {
    const std::string token = tokenizer.decode({id});
    const std::size_t begin = token.find_first_not_of(' ');
    return begin == token.npos || token.find('\n') != token.npos ? tokenizer.token_text(id)
                                                                 : token.substr(begin);
}

Words words_of(const Model& model, const Tokenizer& tokenizer, const std::string& text) {
    const Config& config = model.config;
    require(config.num_hidden_layers == 4 && config.hidden_size == 192 &&
                config.num_attention_heads == 6 && config.num_key_value_heads == 2 &&
                config.head_dim == 32 && config.intermediate_size == 512,
            "words: the model does not have the sizes of assets/king_james");
    Words words;
    const std::vector<Id> ids = tokenizer.encode(text);
    check_word_count(ids.size());
    for (const Id id : ids) words.tokens.push_back(word_of(tokenizer, id));
    const auto [logits, hidden_states, attentions] = model.forward(
        one_sequence(ids), {.output_hidden_states = true, .output_attentions = true});
    words.attentions = xt::view(attentions[layer_index], 0);
    words.residual_stream = all_layers(hidden_states);

    // Project the normalized input of the layer, as its attention does.
    const PreNormBlock& layer = model.layers[layer_index];
    const Tensor3 attention_input = layer.attention_norm(hidden_states[layer_index]);
    words.attention_input = first_sequence(attention_input);
    const QueriesKeysValues projected = project_qkv(layer.self_attn, attention_input);
    words.queries = first_sequence(merge_heads(projected.queries));
    words.keys = first_sequence(merge_heads(projected.keys));
    words.values = first_sequence(merge_heads(projected.values));
    words.head_query_weight = head_weight(layer.self_attn.projections.q_proj, config.head_dim);

    // Apply RoPE to the queries and keys, and take those of the head.
    const AttentionInputs inputs = causal_attention_inputs(config, 1, ids.size());
    const QueriesKeysValues heads =
        apply_qk_norm_and_rope(layer.self_attn.qk_norm, projected, inputs);
    const std::size_t kv_head =
        head_index / (config.num_attention_heads / config.num_key_value_heads);
    words.head_queries = head_of(heads.queries, 0, head_index);
    words.head_keys = head_of(heads.keys, 0, kv_head);
    words.head_values = head_of(heads.values, 0, kv_head);

    // Project the normalized input of the MLP.
    const Tensor3 after_attention =
        hidden_states[layer_index] + layer.self_attn(attention_input, inputs).hidden_states;
    const Tensor3 mlp_input = layer.ffn_norm(after_attention);
    words.gate = first_sequence(layer.mlp.gate_proj(mlp_input));
    words.up = first_sequence(layer.mlp.up_proj(mlp_input));
    return words;
}

}  // namespace llm
