#include "chapters/15_fast/token_block.hpp"

#include <cmath>

namespace llm {
namespace {

std::span<const Real> span_of(const Vector& vector) { return {vector.data(), vector.size()}; }

// The queries or the keys of one token, head by head, in the order of chapter 05.
void apply_qk_norm_and_rope(const QKNorm& qk_norm, Vector QKNormWithWeights::*weight,
                            const RotaryTable& table, std::size_t position,
                            std::span<Real> heads, std::size_t head_dim) {
    for (std::size_t begin = 0; begin < heads.size(); begin += head_dim) {
        const std::span<Real> head = heads.subspan(begin, head_dim);
        if (const auto* norm = std::get_if<QKNormWithWeights>(&qk_norm))
            rms_norm(head, span_of(norm->*weight), norm->eps, head);

        apply_rotary_embedding(head, view_of(table.cos)[position],
                               view_of(table.sin)[position]);

        if (const auto* norm = std::get_if<QKNormWithoutWeights>(&qk_norm)) {
            const Real mean_square = dot(head, head) / static_cast<Real>(head_dim);
            for (Real& element : head) element /= std::sqrt(mean_square + norm->eps);
        }
    }
}

}  // namespace

TokenBlock make_token_block(RunState& state, const Config& config, std::size_t count) {
    const std::size_t query_width = config.num_attention_heads * config.head_dim;
    const std::size_t kv_width = config.num_key_value_heads * config.head_dim;
    return {ensure_capacity(state.hidden_states, count, config.hidden_size),
            ensure_capacity(state.qkv, count, query_width + 2 * kv_width),
            ensure_capacity(state.context, count, query_width), state.seq_len};
}

void embed(const FastModel& model, std::span<const Id> new_ids, MatrixView hidden_states) {
    for (std::size_t t = 0; t < new_ids.size(); ++t)
        model.embed_tokens.dequantize_row(static_cast<std::size_t>(new_ids[t]),
                                          hidden_states[t]);
}

void apply_linear(QuantizedMatmul matmul, const FastLinear& linear, ConstMatrixView inputs,
                  MatrixView outputs, MatmulWorkspace& workspace, Update update) {
    std::size_t column = 0;
    for (const WeightMatrix& weight : linear.weights) {
        matmul(inputs, weight, outputs.columns(column, weight.out_features), workspace, update);
        column += weight.out_features;
    }
    for (std::size_t t = 0; t < outputs.num_rows; ++t)
        for (std::size_t i = 0; i < linear.bias.size(); ++i) outputs[t][i] += linear.bias[i];
}

void apply_norm(const RMSNorm& norm, ConstMatrixView rows, MatrixView normalized) {
    for (std::size_t t = 0; t < rows.num_rows; ++t)
        rms_norm(rows[t], span_of(norm.weight), norm.eps, normalized[t]);
}

void update_kv_cache(const FastModel& model, std::size_t n, std::span<Real> qkv,
                     std::size_t position, RunState& state) {
    const Config& config = model.config;
    const std::size_t head_dim = config.head_dim, num_kv_heads = config.num_key_value_heads;
    const std::size_t query_width = config.num_attention_heads * head_dim;
    const std::size_t kv_width = num_kv_heads * head_dim;
    const std::span<Real> queries = qkv.first(query_width);
    const std::span<Real> keys = qkv.subspan(query_width, kv_width);
    const std::span<Real> values = qkv.subspan(query_width + kv_width);

    const QKNorm& qk_norm = model.layers[n].qk_norm;
    apply_qk_norm_and_rope(qk_norm, &QKNormWithWeights::q_weight, state.rotary_table, position,
                           queries, head_dim);
    apply_qk_norm_and_rope(qk_norm, &QKNormWithWeights::k_weight, state.rotary_table, position,
                           keys, head_dim);
    for (std::size_t h = 0; h < num_kv_heads; ++h)
        state.store(n, h, position, keys.subspan(h * head_dim, head_dim),
                    values.subspan(h * head_dim, head_dim));
}

void compute_logits_of(const FastModel& model, MatrixView hidden_states, RunState& state) {
    apply_norm(model.norm, hidden_states, hidden_states);
    matmul_by_rows(hidden_states, model.head(),
                   view_of(state.logits).rows(0, hidden_states.num_rows),
                   state.workspaces[0].matmul);
}

}  // namespace llm
