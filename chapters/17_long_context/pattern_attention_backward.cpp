#include "chapters/17_long_context/pattern_attention_backward.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

// Backward pass of encode_positions.
QueriesKeysValues encode_positions_backward(const PatternAttention& attention,
                                            const QueriesKeysValues& projected,
                                            const PatternAttentionInputs& inputs,
                                            const QueriesKeysValues& output_gradient,
                                            PatternAttention& gradient) {
    // A temperature multiplies queries, and so their gradient.
    QueriesKeysValues heads_gradient = output_gradient;
    if (attention.temperature_tuning)
        heads_gradient.queries =
            tune_temperature(output_gradient.queries,
                             repeat_ids(inputs.position_ids, output_gradient.queries.shape(0)),
                             *attention.temperature_tuning);
    return qk_norm_and_rope_backward(attention.layer.qk_norm, projected,
                                     rope_inputs(attention, projected, inputs), heads_gradient,
                                     gradient.layer.qk_norm);
}

// (B, 1, T, T)
Tensor4 mask_of(const PatternAttention& attention, const PatternAttentionInputs& inputs,
                const Tensor3& input) {  // (B, T, C)
    return expand_mask(
        pattern_mask(attention.pattern, inputs.position_ids, inputs.position_ids),
        input.shape(0));
}

// Backward pass of gate_and_project; the gate is computed again.
struct GatedOutputGradient {
    Tensor3 context;  // (B, T, H*D)
    Tensor3 input;    // (B, T, C): through the gate; 0 without one
};
GatedOutputGradient gate_and_project_backward(const PatternAttention& attention,
                                              const AttentionActivations& saved,
                                              const Tensor3& output_gradient,
                                              PatternAttention& gradient) {
    const Linear& o_proj = attention.layer.projections.o_proj;
    Linear& o_proj_gradient = gradient.layer.projections.o_proj;
    const Tensor3 context = merge_heads(saved.context);
    if (!attention.output_gate)
        return {linear_backward(o_proj, context, output_gradient, o_proj_gradient),
                xt::zeros<Real>(saved.input.shape())};
    const Tensor3 before = (*attention.output_gate)(saved.input);
    const Tensor3 gate = activate(Sigmoid, before);
    const Tensor3 gated_gradient =
        linear_backward(o_proj, context * gate, output_gradient, o_proj_gradient);
    return {gated_gradient * gate,
            linear_backward(*attention.output_gate, saved.input,
                            gated_gradient * context * activation_derivative(Sigmoid, before),
                            *gradient.output_gate)};
}

}  // namespace

ForwardPass<AttentionActivations> attention_forward(const PatternAttention& attention,
                                                    const Tensor3& input,
                                                    const PatternAttentionInputs& inputs,
                                                    Generator* dropout_generator) {
    AttentionActivations saved;
    saved.input = input;
    saved.projected = project_qkv(attention.layer, input);
    saved.rotated = encode_positions(attention, saved.projected, inputs);
    save_attention(grouped_query_attention(saved.rotated, mask_of(attention, inputs, input),
                                           attention.score_mod),
                   attention.layer.attention_dropout, dropout_generator, saved);
    return {gate_and_project(attention, input, saved.context), std::move(saved)};
}

Tensor3 attention_backward(const PatternAttention& attention,
                           const PatternAttentionInputs& inputs,
                           const AttentionActivations& saved, const Tensor3& output_gradient,
                           PatternAttention& gradient) {
    // The forward pass in reverse: output projection and gate, attention, positions.
    const auto [context_gradient, input_gradient] =
        gate_and_project_backward(attention, saved, output_gradient, gradient);
    const QueriesKeysValues rotated_gradient = grouped_query_attention_backward(
        saved.rotated, mask_of(attention, inputs, saved.input), saved.attentions,
        saved.dropout_mask, split_heads(context_gradient, attention.layer.num_attention_heads),
        attention.score_mod, gradient.score_mod);
    const QueriesKeysValues projected_gradient = encode_positions_backward(
        attention, saved.projected, inputs, rotated_gradient, gradient);
    return input_gradient + project_qkv_backward(attention.layer, saved.input,
                                                 projected_gradient, gradient.layer);
}

PatternDecoder make_pattern_decoder(const Model& model, bool learned_sinks) {
    return with_layers(model, [&](const PreNormBlock& layer) {
        PatternAttention self_attn =
            make_pattern_attention(layer.self_attn, model.config.head_dim, FullAttention{});
        if (learned_sinks)
            self_attn.score_mod.sinks = xt::zeros<Real>({layer.self_attn.num_attention_heads});
        return PatternBlock{self_attn, layer.mlp, layer.attention_norm, layer.ffn_norm,
                            layer.residual_multiplier};
    });
}

PatternDecoder with_pattern(const PatternDecoder& decoder, const AttentionPattern& pattern) {
    PatternDecoder result = decoder;
    for (PatternBlock& layer : result.layers) layer.self_attn.pattern = pattern;
    return result;
}

void add_parameters(ParameterList& list, const std::string& name, PatternAttention& attention) {
    add_parameters(list, name, attention.layer);
    if (auto& sinks = attention.score_mod.sinks)
        list.push_back({name + ".sinks", {sinks->size()}, {sinks->data(), sinks->size()}});
    if (attention.output_gate)
        add_parameters(list, name + ".output_gate", *attention.output_gate);
}

}  // namespace llm
