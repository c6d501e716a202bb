// Chapter 17, file 3 of 8: what models after Llama do to attention scores: soft caps (the
// function of chapter 09), learned sinks and a temperature; forward and backward.
#pragma once

#include <optional>

#include "chapters/12_gradients/attention_backward.hpp"

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
                                               ConstMatrixView output_gradient);  // (T, S)

// A temperature of the queries that grows with their positions: 1 + attn_scale · ln(1 +
// floor((position + first_position) / floor_scale)). It makes the softmax sharper when it has
// more keys. Source: Hugging Face, modeling_llama4.py, attn_temperature_tuning.
struct TemperatureTuning {
    Real floor_scale = 8192;
    Real attn_scale = Real(0.1);
    Id first_position = 1;  // how positions are counted here: from 1, or from 0
};
// Multiplies each query by its temperature. The backward pass is the same function, applied to
// the gradient. Throws ValueError if the shapes do not match.
Tensor4 tune_temperature(const Tensor4& queries,            // (B, H, T, D)
                         const IdMatrix& position_ids,      // (B, T)
                         const TemperatureTuning& tuning);  // -> (B, H, T, D)

// How a layer turns q · k into weights. (FlexAttention: score_mod.)
struct ScoreMod {
    Real scale = 1;                                             // 1/√D in most models
    std::optional<Real> attn_logit_softcapping = std::nullopt;  // none: scores have no cap
    std::optional<Vector> sinks = std::nullopt;                 // (H); none: no sink
};

// The attention of chapter 05 of query head h, with these modifications.
HeadAttentionOutput attention(const Matrix& queries,  // (T, D)
                              const Matrix& keys,     // (S, D)
                              const Matrix& values,   // (S, D)
                              const Matrix& mask,     // (T, S), 0 or -inf
                              const ScoreMod& score_mod, std::size_t h);
// For all heads. Throws ValueError if the shapes do not match, or unless there is one sink per
// head.
AttentionOutput grouped_query_attention(const QueriesKeysValues& heads,  // T queries, S keys
                                        const Tensor4& mask,             // (B, 1, T, S)
                                        const ScoreMod& score_mod);

// Returns the gradients with respect to queries, keys and values; that of the sinks is
// accumulated. Capped scores and the weights of sinks are computed again from queries and keys.
QueriesKeysValues grouped_query_attention_backward(
    const QueriesKeysValues& heads,
    const Tensor4& mask,              // (B, 1, T, S)
    const Tensor4& attentions,        // (B, H, T, S): the weights, before dropout
    const Tensor4& dropout_mask,      // (B, H, T, S), or empty: no dropout
    const Tensor4& context_gradient,  // (B, H, T, D)
    const ScoreMod& score_mod, ScoreMod& gradient);

}  // namespace llm
