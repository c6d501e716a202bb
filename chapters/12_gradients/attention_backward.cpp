#include "chapters/12_gradients/attention_backward.hpp"

#include <cmath>

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/dropout.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "common/tensors/elementwise.hpp"
#include "common/tensors/head_view.hpp"

namespace llm {
namespace {

// (B, H, T, D) -> (B*H*T, D)
Matrix rows_of_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    return reshape(heads, {batch_size * num_heads * seq_len, head_dim});
}
Tensor4 heads_from_rows(Matrix rows, const Tensor4& like) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(like);
    return reshape(std::move(rows), {batch_size, num_heads, seq_len, head_dim});
}

// RMSNorm over head_dim, or over all heads of a token, with the weights of a QK norm.
Tensor4 rms_norm_heads_backward(const Vector& weight, Real eps, const Tensor4& heads,
                                const Tensor4& output_gradient, Vector& weight_gradient) {
    RMSNorm gradient{std::move(weight_gradient), eps};
    Tensor4 result;
    if (weight.size() == heads.shape(1) * heads.shape(3))
        result = split_heads(norm_backward(RMSNorm{weight, eps}, merge_heads(heads),
                                           merge_heads(output_gradient), gradient),
                             heads.shape(1));
    else
        result = heads_from_rows(norm_backward(RMSNorm{weight, eps}, rows_of_heads(heads),
                                               rows_of_heads(output_gradient), gradient),
                                 heads);
    weight_gradient = std::move(gradient.weight);
    return result;
}

// The weighted sum of the values, with the weights after dropout: (B, H, T, D).
Tensor4 context_of(const Tensor4& weights, const Tensor4& values) {
    const auto [batch_size, num_heads, seq_len, kv_len] = dims(weights);
    Tensor4 context(std::array{batch_size, num_heads, seq_len, values.shape(3)});
    const std::size_t num_key_value_groups = num_heads / values.shape(1);
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const std::size_t kv_head = h / num_key_value_groups;
            matmul(head_view(weights, b, h), head_view(values, b, kv_head),
                   head_view(context, b, h));
        }
    return context;
}

}  // namespace

Tensor4 rope_backward(const Tensor4& output_gradient, const RotaryTable& table,
                      const IdMatrix& position_ids) {
    // The transpose of a rotation matrix is the rotation by the negative angle: the cosine is
    // the same, the sine changes its sign.
    return apply_rotary_embedding(
        output_gradient, {table.cos, table.sin * Real(-1), table.num_unrotated}, position_ids);
}

Matrix softmax_backward(const Matrix& weights, const Matrix& output_gradient) {
    return softmax_backward(view_of(weights), view_of(output_gradient));
}

Matrix softmax_backward(ConstMatrixView weights, ConstMatrixView output_gradient) {
    const std::size_t num_rows = weights.num_rows, width = weights.num_columns;
    Matrix score_gradient(std::array{num_rows, width});  // (T, S)
    for (std::size_t t = 0; t < num_rows; ++t) {
        // dx_s = w_s (dw_s - Σ w dw): the weights of a row sum to 1.
        const Real dot = dot_product(weights[t], output_gradient[t]);
        for (std::size_t s = 0; s < width; ++s)
            score_gradient(t, s) = weights[t][s] * (output_gradient[t][s] - dot);
    }
    return score_gradient;
}

QueriesKeysValues qk_norm_and_rope_backward(const QKNorm& qk_norm,
                                            const QueriesKeysValues& projected,
                                            const AttentionInputs& inputs,
                                            const QueriesKeysValues& output_gradient,
                                            QKNorm& gradient) {
    const auto& [queries, keys, values] = output_gradient;
    const auto rope_backward_of = [&](const Tensor4& states) {
        return rope_backward(states, inputs.rotary_table, inputs.position_ids);
    };

    // Qwen3: the norm came before the rotation, so its backward pass comes after.
    if (const auto* norm = std::get_if<QKNormWithWeights>(&qk_norm)) {
        auto& norm_gradient = std::get<QKNormWithWeights>(gradient);
        return {rms_norm_heads_backward(norm->q_weight, norm->eps, projected.queries,
                                        rope_backward_of(queries), norm_gradient.q_weight),
                rms_norm_heads_backward(norm->k_weight, norm->eps, projected.keys,
                                        rope_backward_of(keys), norm_gradient.k_weight),
                values};
    }

    // Llama 4: the norm came after the rotation.
    if (const auto* norm = std::get_if<QKNormWithoutWeights>(&qk_norm)) {
        const auto norm_backward_of = [&](const Tensor4& states,
                                          const Tensor4& state_gradient) {
            const Tensor4 rotated =
                apply_rotary_embedding(states, inputs.rotary_table, inputs.position_ids);
            return heads_from_rows(
                rms_normalize_backward(rows_of_heads(rotated), rows_of_heads(state_gradient),
                                       norm->eps),
                states);
        };
        return {rope_backward_of(norm_backward_of(projected.queries, queries)),
                rope_backward_of(norm_backward_of(projected.keys, keys)), values};
    }

    return {rope_backward_of(queries), rope_backward_of(keys), values};
}

Matrix scores_backward(const HeadActivations& head, ConstMatrixView weight_gradient) {
    const Real scale = 1 / std::sqrt(static_cast<Real>(head.queries.num_columns));
    return softmax_backward(head.weights, weight_gradient) * scale;
}

QueriesKeysValues grouped_query_attention_backward(const QueriesKeysValues& heads,
                                                   const Tensor4& attentions,
                                                   const Tensor4& dropout_mask,
                                                   const Tensor4& context_gradient,
                                                   const ScoresBackward& head_scores_backward) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads.queries);
    const std::size_t num_key_value_groups = num_heads / heads.keys.shape(1);
    QueriesKeysValues gradient{Tensor4(heads.queries.shape()),
                               xt::zeros<Real>(heads.keys.shape()),
                               xt::zeros<Real>(heads.values.shape())};
    const bool has_dropout = dropout_mask.size() > 0;
    const Tensor4 dropped = has_dropout ? attentions * dropout_mask : Tensor4{};
    const Tensor4& weights_after_dropout = has_dropout ? dropped : attentions;
    Matrix weight_gradient(std::array{seq_len, heads.keys.shape(2)});  // (T, S)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const std::size_t kv_head = h / num_key_value_groups;
            const ConstMatrixView query = head_view(heads.queries, b, h);       // (T, D)
            const ConstMatrixView key = head_view(heads.keys, b, kv_head);      // (S, D)
            const ConstMatrixView value = head_view(heads.values, b, kv_head);  // (S, D)
            const ConstMatrixView weights = head_view(attentions, b, h);        // (T, S)
            const ConstMatrixView output_gradient =
                head_view(context_gradient, b, h);  // (T, D)

            // Context = dropout(weights) · values. G query heads share a key/value head: their
            // gradients add up.
            matmul_transposed(output_gradient, value, view_of(weight_gradient));
            if (has_dropout) weight_gradient = weight_gradient * head_of(dropout_mask, b, h);
            transposed_matmul(head_view(weights_after_dropout, b, h), output_gradient,
                              head_view(gradient.values, b, kv_head), Update::accumulate);

            // Weights = softmax(scale · queries · keysᵀ + mask); the mask is a constant.
            const Matrix score_gradient =  // (T, S), with respect to queries · keysᵀ
                head_scores_backward({b, h, query, key, weights}, view_of(weight_gradient));
            matmul(view_of(score_gradient), key, head_view(gradient.queries, b, h));
            transposed_matmul(view_of(score_gradient), query,
                              head_view(gradient.keys, b, kv_head), Update::accumulate);
        }
    return gradient;
}

void save_attention(AttentionOutput attention, Real attention_dropout,
                    Generator* dropout_generator, AttentionActivations& saved) {
    saved.attentions = std::move(attention.weights);
    saved.context = std::move(attention.context);
    saved.dropout_mask = Tensor4{};
    if (!dropout_generator || attention_dropout == 0) return;
    const Tensor4 ones = xt::ones<Real>(saved.attentions.shape());
    saved.dropout_mask = dropout(ones, attention_dropout, *dropout_generator);
    saved.context = context_of(saved.attentions * saved.dropout_mask, saved.rotated.values);
}

ForwardPass<AttentionActivations> attention_forward(const AttentionLayer& layer,
                                                    const Tensor3& input,
                                                    const AttentionInputs& inputs,
                                                    Generator* dropout_generator) {
    AttentionActivations saved;
    saved.input = input;
    saved.projected = project_qkv(layer, input);
    saved.rotated = apply_qk_norm_and_rope(layer.qk_norm, saved.projected, inputs);
    save_attention(grouped_query_attention(saved.rotated.queries, saved.rotated.keys,
                                           saved.rotated.values, inputs.attention_mask),
                   layer.attention_dropout, dropout_generator, saved);
    return {project_output(layer, saved.context), std::move(saved)};
}

Tensor3 project_qkv_backward(const AttentionLayer& layer, const Tensor3& input,
                             const QueriesKeysValues& output_gradient,
                             AttentionLayer& gradient) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
    auto& [q_gradient, k_gradient, v_gradient, o_gradient] = gradient.projections;
    const auto& [queries, keys, values] = output_gradient;

    // Queries, keys and values are projections of the same input: their gradients add up.
    return linear_backward(q_proj, input, merge_heads(queries), q_gradient) +
           linear_backward(k_proj, input, merge_heads(keys), k_gradient) +
           linear_backward(v_proj, input, merge_heads(values), v_gradient);
}

Tensor3 attention_backward(const AttentionLayer& layer, const AttentionInputs& inputs,
                           const AttentionActivations& saved, const Tensor3& output_gradient,
                           AttentionLayer& gradient) {
    // The forward pass in reverse: output projection, attention, RoPE and QK norm.
    const Tensor3 merged_gradient =
        linear_backward(layer.projections.o_proj, merge_heads(saved.context), output_gradient,
                        gradient.projections.o_proj);
    const Tensor4 context_gradient = split_heads(merged_gradient, layer.num_attention_heads);
    const QueriesKeysValues rotated_gradient = grouped_query_attention_backward(
        saved.rotated, saved.attentions, saved.dropout_mask, context_gradient);
    const QueriesKeysValues projected_gradient = qk_norm_and_rope_backward(
        layer.qk_norm, saved.projected, inputs, rotated_gradient, gradient.qk_norm);
    return project_qkv_backward(layer, saved.input, projected_gradient, gradient);
}

}  // namespace llm
