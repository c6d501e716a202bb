// Chapter 17, file 3 of 9: what models after Llama do to attention scores: soft caps (the
// function of chapter 09), learned sinks and a temperature; forward and backward.
#pragma once

#include <optional>
#include <vector>

#include "chapters/05_gqa/attention.hpp"

namespace llm {

// A softmax over the keys and one more logit, the attention sink, which has no value: weights
// that do not go to a key go nowhere. A row of weights sums to 1 - sink_weight. Source: Hugging
// Face, modeling_gpt_oss.py, eager_attention_forward.
struct SinkSoftmax {
    Matrix weights;       // (T, S)
    Vector sink_weights;  // (T)
};
SinkSoftmax softmax_with_sink(const Matrix& scores,  // (T, S)
                              Real sink);            // one logit per head
struct SinkSoftmaxGradient {
    Matrix scores;  // (T, S)
    Real sink;
};
SinkSoftmaxGradient softmax_with_sink_backward(const SinkSoftmax& saved,
                                               const Matrix& output_gradient);  // (T, S)

// Llama 4's temperature of the queries in layers without RoPE: 1 + attn_scale · ln(1 +
// floor((position + 1) / floor_scale)). It makes the softmax sharper when it has more keys.
// Source: Hugging Face, modeling_llama4.py, attn_temperature_tuning.
struct TemperatureTuning {
    Real floor_scale = 8192;
    Real attn_scale = Real(0.1);
};
// Multiplies each query by its temperature. The backward pass is the same function, applied to
// the gradient. Throws ShapeError if the shapes do not match.
Tensor4 tune_temperature(const Tensor4& queries,            // (B, H, T, D)
                         const IdMatrix& position_ids,      // (B, T)
                         const TemperatureTuning& tuning);  // -> (B, H, T, D)

// How a layer turns q · k into weights.
struct ScoreFunction {
    Real scale = 1;  // 1/√D; Gemma: 1/√query_pre_attn_scalar
    std::optional<Real> attn_logit_softcapping = std::nullopt;  // Gemma 2
    std::optional<Vector> sinks = std::nullopt;                 // (H): gpt-oss
};

// The activations of one head that its backward pass needs.
struct ScoredHead {
    Matrix capped_scores;  // (T, S): scaled and capped, before the mask
    SinkSoftmax softmax;
    Matrix context;  // (T, D)
};
struct ScoredAttentionActivations {
    std::vector<ScoredHead> heads;  // B·H: head h of sequence b is heads[b·H + h]
};

// Grouped-query attention (chapter 05) with a score function. T and S may differ. The
// activations are saved. Throws ShapeError if the shapes do not match, or unless there is one
// sink per head.
AttentionOutput scored_attention(
    const QueriesKeysValues& heads,  // (B, H, T, D), (B, Hkv, S, D)
    const Tensor4& mask,             // (B, 1, T, S)
    const ScoreFunction& score_function, ScoredAttentionActivations* saved = nullptr);

// The gradients with respect to queries, keys, values and sinks.
struct ScoredAttentionGradient {
    QueriesKeysValues heads;
    Vector sinks;  // (H), zeros without sinks
};
ScoredAttentionGradient scored_attention_backward(
    const QueriesKeysValues& heads, const ScoreFunction& score_function,
    const ScoredAttentionActivations& saved, const Tensor4& context_gradient);  // (B, H, T, D)

}  // namespace llm
