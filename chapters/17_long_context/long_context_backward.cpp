#include "chapters/17_long_context/long_context_backward.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

// A block that saves its activations when it is called, for run_layers of chapter 09.
struct SavingLongContextBlock {
    const LongContextBlock* block;
    LongContextBlockActivations* saved;

    AttentionLayer::Output operator()(const Tensor3& hidden_states,
                                      const LongContextInputs& inputs, RollingCache*) const {
        return {block_forward(*block, hidden_states, inputs, *saved), {}};
    }
};

// Backward pass of encode_positions.
QueriesKeysValues encode_positions_backward(const LongContextAttention& attention,
                                            const QueriesKeysValues& projected,
                                            const LongContextInputs& inputs,
                                            const QueriesKeysValues& output_gradient,
                                            LongContextAttention& gradient) {
    const std::size_t batch_size = projected.queries.shape(0);
    if (const auto* rope = std::get_if<RopeOfTable>(&attention.position_encoding))
        return qk_norm_and_rope_backward(attention.layer.qk_norm, projected,
                                         rope_inputs(inputs, *rope, batch_size),
                                         output_gradient, gradient.layer.qk_norm);
    // A temperature multiplies queries, and so their gradient.
    const auto& tuning = std::get<NoPE>(attention.position_encoding).temperature_tuning;
    if (!tuning) return output_gradient;
    return {tune_temperature(output_gradient.queries,
                             repeat_ids(inputs.position_ids, batch_size), *tuning),
            output_gradient.keys, output_gradient.values};
}

LongContextInputs inputs_of(const LongContextDecoder& decoder, const IdMatrix& input_ids) {
    return long_context_inputs({decoder.rotary_table}, input_ids.shape(1));
}

// (B, T) -> (B, T, C)
Tensor3 embed(const LongContextDecoder& decoder, const IdMatrix& input_ids) {
    const std::size_t vocab_size = decoder.embed_tokens.shape(0);
    for (const Id id : input_ids)
        require(id >= 0 && id < static_cast<Id>(vocab_size),
                "long_context_decoder: token id {} lies outside the vocabulary of {}", id,
                vocab_size);
    return embedding(decoder.embed_tokens, input_ids);
}

}  // namespace

Tensor3 attention_forward(const LongContextAttention& attention, const Tensor3& input,
                          const LongContextInputs& inputs, LongContextActivations& saved) {
    saved.input = input;
    saved.projected = project_qkv(attention.layer, input);
    saved.rotated = encode_positions(attention, saved.projected, inputs);
    const Tensor4 mask =  // (B, 1, T, T)
        expand_mask(pattern_mask(attention.pattern, inputs.position_ids, inputs.position_ids),
                    input.shape(0));
    saved.context =
        scored_attention(saved.rotated, mask, attention.score_function, &saved.scored).context;
    return project_output(attention.layer, saved.context);
}

Tensor3 attention_backward(const LongContextAttention& attention,
                           const LongContextInputs& inputs, const LongContextActivations& saved,
                           const Tensor3& output_gradient, LongContextAttention& gradient) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
    auto& [q_gradient, k_gradient, v_gradient, o_gradient] = gradient.layer.projections;

    // The forward pass in reverse: output projection, attention, positions.
    const Tensor3 merged_gradient =
        linear_backward(o_proj, merge_heads(saved.context), output_gradient, o_gradient);
    const ScoredAttentionGradient scored = scored_attention_backward(
        saved.rotated, attention.score_function, saved.scored,
        split_heads(merged_gradient, attention.layer.num_attention_heads));
    if (gradient.score_function.sinks) *gradient.score_function.sinks += scored.sinks;
    const auto [queries, keys, values] =
        encode_positions_backward(attention, saved.projected, inputs, scored.heads, gradient);

    // Queries, keys and values are projections of the same input: their gradients add up.
    return linear_backward(q_proj, saved.input, merge_heads(queries), q_gradient) +
           linear_backward(k_proj, saved.input, merge_heads(keys), k_gradient) +
           linear_backward(v_proj, saved.input, merge_heads(values), v_gradient);
}

Tensor3 block_forward(const LongContextBlock& block, const Tensor3& hidden_states,
                      const LongContextInputs& inputs, LongContextBlockActivations& saved) {
    saved.input = hidden_states;
    saved.after_attention =
        hidden_states + attention_forward(block.self_attn, block.attention_norm(hidden_states),
                                          inputs, saved.self_attn);
    return saved.after_attention +
           mlp_forward(block.mlp, block.ffn_norm(saved.after_attention), saved.mlp);
}

Tensor3 block_backward(const LongContextBlock& block, const LongContextInputs& inputs,
                       const LongContextBlockActivations& saved, const Tensor3& output_gradient,
                       LongContextBlock& gradient) {
    const Tensor3 mlp_gradient =
        mlp_backward(block.mlp, saved.mlp, output_gradient, gradient.mlp);
    const Tensor3 after_attention_gradient =
        output_gradient +
        norm_backward(block.ffn_norm, saved.after_attention, mlp_gradient, gradient.ffn_norm);
    const Tensor3 normalized_gradient = attention_backward(
        block.self_attn, inputs, saved.self_attn, after_attention_gradient, gradient.self_attn);
    return after_attention_gradient + norm_backward(block.attention_norm, saved.input,
                                                    normalized_gradient,
                                                    gradient.attention_norm);
}

LongContextDecoder make_long_context_decoder(const Model& model, bool learned_sinks) {
    LongContextDecoder decoder{model.embed_tokens,
                               {},
                               model.norm,
                               model.rotary_table(model.config.max_position_embeddings)};
    for (const PreNormBlock& layer : model.layers) {
        LongContextAttention self_attn = make_long_context_attention(
            layer.self_attn, model.config.head_dim, FullAttention{});
        if (learned_sinks)
            self_attn.score_function.sinks =
                xt::zeros<Real>({layer.self_attn.num_attention_heads});
        decoder.layers.push_back({self_attn, layer.mlp, layer.attention_norm, layer.ffn_norm});
    }
    return decoder;
}

LongContextDecoder with_pattern(const LongContextDecoder& decoder,
                                const AttentionPattern& pattern) {
    LongContextDecoder result = decoder;
    for (LongContextBlock& layer : result.layers) layer.self_attn.pattern = pattern;
    return result;
}

std::vector<Parameter> named_parameters(LongContextDecoder& decoder) {
    ParameterList list;
    add_parameters(list, "model.embed_tokens.weight", decoder.embed_tokens);
    for (std::size_t n = 0; n < decoder.layers.size(); ++n) {
        const std::string name = "model.layers." + std::to_string(n);
        auto& [self_attn, mlp, attention_norm, ffn_norm] = decoder.layers[n];
        add_parameters(list, name + ".input_layernorm", attention_norm);
        add_parameters(list, name + ".self_attn", self_attn.layer);
        if (auto& sinks = self_attn.score_function.sinks)
            list.push_back(
                {name + ".self_attn.sinks", {sinks->size()}, {sinks->data(), sinks->size()}});
        add_parameters(list, name + ".post_attention_layernorm", ffn_norm);
        add_parameters(list, name + ".mlp", mlp);
    }
    add_parameters(list, "model.norm", decoder.norm);
    return list;
}

LongContextDecoder zeros_like(const LongContextDecoder& decoder) {
    LongContextDecoder zeros = decoder;
    for (const Parameter& parameter : named_parameters(zeros))
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
    return zeros;
}

double forward_backward(const LongContextDecoder& decoder, const IdMatrix& input_ids,
                        const IdMatrix& targets, LongContextDecoder& gradient) {
    // Run the layers with the loop of chapter 09; each saves its activations.
    const LongContextInputs inputs = inputs_of(decoder, input_ids);
    std::vector<LongContextBlockActivations> saved(decoder.layers.size());
    std::vector<SavingLongContextBlock> layers;
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        layers.push_back({&decoder.layers[n], &saved[n]});
    std::vector<RollingCache>* const no_caches = nullptr;
    const Tensor3 last_hidden_state =  // (B, T, C)
        run_layers(layers, embed(decoder, input_ids), inputs, no_caches).last_hidden_state;
    const Tensor3 normalized = decoder.norm(last_hidden_state);                     // (B, T, C)
    const Tensor3 logits = Linear{decoder.embed_tokens, std::nullopt}(normalized);  // (B, T, V)

    // The layers, last to first.
    Tensor3 hidden_gradient = norm_backward(
        decoder.norm, last_hidden_state,
        lm_head_backward(decoder.embed_tokens, normalized,
                         cross_entropy_backward(logits, targets), gradient.embed_tokens),
        gradient.norm);
    for (std::size_t n = decoder.layers.size(); n-- > 0;)
        hidden_gradient = block_backward(decoder.layers[n], inputs, saved[n], hidden_gradient,
                                         gradient.layers[n]);
    embedding_backward(input_ids, hidden_gradient, gradient.embed_tokens);
    return cross_entropy(logits, targets);
}

LongContextOutput evaluate(const LongContextDecoder& decoder, const IdMatrix& input_ids) {
    std::vector<RollingCache>* const no_caches = nullptr;
    DecoderOutput output =
        run_layers(decoder.layers, embed(decoder, input_ids), inputs_of(decoder, input_ids),
                   no_caches, {.output_attentions = true});
    return {Linear{decoder.embed_tokens, std::nullopt}(decoder.norm(output.last_hidden_state)),
            std::move(output.attentions)};
}

}  // namespace llm
