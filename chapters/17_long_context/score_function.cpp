#include "chapters/17_long_context/score_function.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

void check(const QueriesKeysValues& heads, const Tensor4& mask,
           const ScoreFunction& score_function) {
    const auto [batch_size, num_heads, query_len, head_dim] = dims(heads.queries);
    const auto [kv_batch_size, num_kv_heads, kv_len, kv_head_dim] = dims(heads.keys);
    require(heads.keys.shape() == heads.values.shape(),
            "scored_attention: keys of {} do not match values of {}", heads.keys.shape(),
            heads.values.shape());
    require(kv_batch_size == batch_size && kv_head_dim == head_dim && num_kv_heads > 0 &&
                num_heads % num_kv_heads == 0,
            "scored_attention: queries of {} do not match keys of {}", heads.queries.shape(),
            heads.keys.shape());
    require(mask.shape() == std::array{batch_size, std::size_t{1}, query_len, kv_len},
            "scored_attention: a mask of {} does not match queries of {} and keys of {}",
            mask.shape(), heads.queries.shape(), heads.keys.shape());
    const std::size_t num_sinks =
        score_function.sinks ? score_function.sinks->size() : num_heads;
    require(num_sinks == num_heads, "scored_attention: {} sinks for {} heads", num_sinks,
            num_heads);
}

// The attention of one head, as in chapter 05, with the two changes.
ScoredHead forward_head(const Matrix& queries, const Matrix& keys, const Matrix& values,
                        const Matrix& mask, const ScoreFunction& score_function,
                        std::size_t h) {
    ScoredHead head;
    head.capped_scores = matmul_transposed(queries, keys) * score_function.scale;  // (T, S)

    // Cap before the mask: a cap would turn -inf into -cap.
    if (score_function.attn_logit_softcapping)
        head.capped_scores =
            logit_softcap(head.capped_scores, *score_function.attn_logit_softcapping);

    // The sink is a logit of its own: neither scaled, nor capped, nor masked.
    const Matrix masked_scores = head.capped_scores + mask;  // (T, S)
    if (score_function.sinks)
        head.softmax = softmax_with_sink(masked_scores, (*score_function.sinks)(h));
    else
        head.softmax = {softmax(masked_scores), xt::zeros<Real>({queries.shape(0)})};
    head.context = matmul(head.softmax.weights, values);  // (T, D)
    return head;
}

// Adds the gradients of one head to the tensors: query head h, key/value head kv_head.
void backward_head(const QueriesKeysValues& heads, const ScoreFunction& score_function,
                   const ScoredHead& saved, const Matrix& context_gradient, std::size_t b,
                   std::size_t h, std::size_t kv_head, ScoredAttentionGradient& gradient) {
    const auto add_to = [&](Tensor4& total, std::size_t head, const Matrix& added) {
        Real* const to = total.data() + (b * total.shape(1) + head) * added.size();
        std::transform(added.begin(), added.end(), to, to, std::plus<>{});
    };
    // Context = weights · values.
    const Matrix weights_transposed = xt::transpose(saved.softmax.weights);  // (S, T)
    add_to(gradient.heads.values, kv_head, matmul(weights_transposed, context_gradient));
    const Matrix weight_gradient =  // (T, S)
        matmul_transposed(context_gradient, head_of(heads.values, b, kv_head));

    // Weights = softmax over scores and sink. Without a sink, its weight and gradient are 0.
    SinkSoftmaxGradient softmax = softmax_with_sink_backward(saved.softmax, weight_gradient);
    gradient.sinks(h) += softmax.sink;

    // Scores = softcap(scale · queries · keysᵀ).
    Matrix score_gradient = std::move(softmax.scores);  // (T, S)
    if (score_function.attn_logit_softcapping)
        score_gradient = logit_softcap_backward(
            saved.capped_scores, *score_function.attn_logit_softcapping, score_gradient);
    score_gradient = score_gradient * score_function.scale;
    const Matrix transposed = xt::transpose(score_gradient);  // (S, T)
    add_to(gradient.heads.queries, h, matmul(score_gradient, head_of(heads.keys, b, kv_head)));
    add_to(gradient.heads.keys, kv_head, matmul(transposed, head_of(heads.queries, b, h)));
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
                                               const Matrix& output_gradient) {
    // The sink has no value, so the gradient of its weight is 0. The other columns are those of
    // an ordinary softmax: dx_s = w_s (dw_s - Σ w dw). For the sink: dx = -w_sink Σ w dw.
    SinkSoftmaxGradient gradient{softmax_backward(saved.weights, output_gradient), 0};
    const Matrix products = saved.weights * output_gradient;  // (T, S)
    for (std::size_t t = 0; t < products.shape(0); ++t)
        for (std::size_t s = 0; s < products.shape(1); ++s)
            gradient.sink -= saved.sink_weights(t) * products(t, s);
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
        const Real position = static_cast<Real>(position_ids.data()[i]);
        const Real step = std::floor((position + 1) / tuning.floor_scale);
        temperatures.data()[i] = 1 + tuning.attn_scale * std::log(1 + step);
    }
    return queries * temperatures;
}

AttentionOutput scored_attention(const QueriesKeysValues& heads, const Tensor4& mask,
                                 const ScoreFunction& score_function,
                                 ScoredAttentionActivations* saved) {
    check(heads, mask, score_function);
    const auto [batch_size, num_heads, query_len, head_dim] = dims(heads.queries);
    const std::size_t num_key_value_groups = num_heads / heads.keys.shape(1);
    AttentionOutput output{
        Tensor4(std::array{batch_size, num_heads, query_len, heads.keys.shape(2)}),
        Tensor4(heads.queries.shape())};
    if (saved) saved->heads.clear();
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const std::size_t kv_head = h / num_key_value_groups;
            ScoredHead head = forward_head(
                head_of(heads.queries, b, h), head_of(heads.keys, b, kv_head),
                head_of(heads.values, b, kv_head), head_of(mask, b, 0), score_function, h);
            xt::view(output.weights, b, h, xt::all(), xt::all()) = head.softmax.weights;
            xt::view(output.context, b, h, xt::all(), xt::all()) = head.context;
            if (saved) saved->heads.push_back(std::move(head));
        }
    return output;
}

ScoredAttentionGradient scored_attention_backward(const QueriesKeysValues& heads,
                                                  const ScoreFunction& score_function,
                                                  const ScoredAttentionActivations& saved,
                                                  const Tensor4& context_gradient) {
    const auto [batch_size, num_heads, query_len, head_dim] = dims(heads.queries);
    require(context_gradient.shape() == heads.queries.shape() &&
                saved.heads.size() == batch_size * num_heads,
            "scored_attention_backward: a gradient of {} and {} saved heads do not match "
            "queries of {}",
            context_gradient.shape(), saved.heads.size(), heads.queries.shape());
    const std::size_t num_key_value_groups = num_heads / heads.keys.shape(1);
    ScoredAttentionGradient gradient{
        {xt::zeros<Real>(heads.queries.shape()), xt::zeros<Real>(heads.keys.shape()),
         xt::zeros<Real>(heads.values.shape())},
        xt::zeros<Real>({num_heads})};
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)
            backward_head(heads, score_function, saved.heads[b * num_heads + h],
                          head_of(context_gradient, b, h), b, h, h / num_key_value_groups,
                          gradient);
    return gradient;
}

}  // namespace llm
