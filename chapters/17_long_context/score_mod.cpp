#include "chapters/17_long_context/score_mod.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

// Scaled and capped, before the mask: a cap would turn -inf into -cap. (T, S)
Matrix capped_scores(ConstMatrixView queries, ConstMatrixView keys, const ScoreMod& score_mod) {
    Matrix scores(std::array{queries.num_rows, keys.num_rows});
    matmul_transposed(queries, keys, view_of(scores));
    scores = scores * score_mod.scale;
    if (score_mod.attn_logit_softcapping)
        scores = logit_softcap(scores, *score_mod.attn_logit_softcapping);
    return scores;
}

}  // namespace

SinkSoftmax softmax_with_sink(const Matrix& scores, Real sink) {
    // Append the sink as a last column, apply the softmax of chapter 01, and drop the column.
    const auto [query_len, kv_len] = dims(scores);
    Matrix combined(std::array{query_len, kv_len + 1});  // (T, S + 1)
    xt::view(combined, xt::all(), xt::range(std::size_t{0}, kv_len)) = scores;
    xt::view(combined, xt::all(), kv_len) = sink;
    const Matrix weights = softmax(combined);
    return {xt::view(weights, xt::all(), xt::range(std::size_t{0}, kv_len)),
            xt::view(weights, xt::all(), kv_len)};
}

SinkSoftmaxGradient softmax_with_sink_backward(const SinkSoftmax& saved,
                                               ConstMatrixView output_gradient) {
    // The sink has no value, so the gradient of its weight is 0. The other columns are those of
    // an ordinary softmax: dx_s = w_s (dw_s - Σ w dw). For the sink: dx = -w_sink Σ w dw.
    const ConstMatrixView weights = view_of(saved.weights);  // (T, S)
    SinkSoftmaxGradient gradient{softmax_backward(weights, output_gradient), 0};
    for (std::size_t t = 0; t < weights.num_rows; ++t)
        gradient.sink -= saved.sink_weights(t) * dot_product(weights[t], output_gradient[t]);
    return gradient;
}

Tensor4 tune_temperature(const Tensor4& queries, const IdMatrix& position_ids,
                         const TemperatureTuning& tuning) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(queries);
    require(position_ids.shape() == std::array{batch_size, seq_len},
            "tune_temperature: position ids of {} do not match queries of {}",
            position_ids.shape(), queries.shape());
    Tensor4 temperatures(std::array{batch_size, std::size_t{1}, seq_len, std::size_t{1}});
    for (std::size_t i = 0; i < position_ids.size(); ++i) {
        const Id position = position_ids.data()[i] + tuning.first_position;
        const Real step = std::floor(static_cast<Real>(position) / tuning.floor_scale);
        temperatures.data()[i] = 1 + tuning.attn_scale * std::log(1 + step);
    }
    return queries * temperatures;
}

HeadAttentionOutput attention(const Matrix& queries, const Matrix& keys, const Matrix& values,
                              const Matrix& mask, const ScoreMod& score_mod, std::size_t h) {
    // The sink is a logit of its own: neither scaled, nor capped, nor masked.
    const Matrix masked_scores =  // (T, S)
        capped_scores(view_of(queries), view_of(keys), score_mod) + mask;
    Matrix weights = score_mod.sinks
                         ? softmax_with_sink(masked_scores, (*score_mod.sinks)(h)).weights
                         : softmax(masked_scores);
    Matrix context = matmul(weights, values);  // (T, D)
    return {std::move(weights), std::move(context)};
}

AttentionOutput grouped_query_attention(const QueriesKeysValues& heads, const Tensor4& mask,
                                        const ScoreMod& score_mod) {
    const std::size_t num_heads = heads.queries.shape(1);
    require(!score_mod.sinks || score_mod.sinks->size() == num_heads,
            "attention: {} sinks for {} heads", score_mod.sinks ? score_mod.sinks->size() : 0,
            num_heads);
    const HeadAttention head_attention = [&](const Matrix& queries, const Matrix& keys,
                                             const Matrix& values, const Matrix& head_mask,
                                             std::size_t h) {
        return attention(queries, keys, values, head_mask, score_mod, h);
    };
    return grouped_query_attention(heads.queries, heads.keys, heads.values, mask,
                                   head_attention);
}

QueriesKeysValues grouped_query_attention_backward(
    const QueriesKeysValues& heads, const Tensor4& mask, const Tensor4& attentions,
    const Tensor4& dropout_mask, const Tensor4& context_gradient, const ScoreMod& score_mod,
    ScoreMod& gradient) {
    const ScoresBackward scores_backward = [&](const HeadActivations& head,
                                               ConstMatrixView weight_gradient) -> Matrix {
        const std::optional<Real> cap = score_mod.attn_logit_softcapping;
        Matrix scores;  // (T, S)
        if (cap || score_mod.sinks) scores = capped_scores(head.queries, head.keys, score_mod);

        // Weights = softmax over scores and sink.
        Matrix score_gradient;  // (T, S)
        if (score_mod.sinks) {
            const SinkSoftmax saved = softmax_with_sink(scores + head_of(mask, head.b, 0),
                                                        (*score_mod.sinks)(head.h));
            SinkSoftmaxGradient softmax = softmax_with_sink_backward(saved, weight_gradient);
            (*gradient.sinks)(head.h) += softmax.sink;
            score_gradient = std::move(softmax.scores);
        } else {
            score_gradient = softmax_backward(head.weights, weight_gradient);
        }

        // Scores = softcap(scale · queries · keysᵀ).
        if (cap) score_gradient = logit_softcap_backward(scores, *cap, score_gradient);
        return score_gradient * score_mod.scale;
    };
    return grouped_query_attention_backward(heads, attentions, dropout_mask, context_gradient,
                                            scores_backward);
}

}  // namespace llm
