#include "chapters/15_fast/token_block.hpp"

#include <cmath>

#include "chapters/15_fast/flash_attention.hpp"
#include "common/numbers/ceil_div.hpp"

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

std::size_t num_new_tokens(SequenceBatch batch) {
    std::size_t count = 0;
    for (const SequenceTokens& sequence : batch) count += sequence.new_ids.size();
    return count;
}

TokenBlock embed(const FastModel& model, SequenceBatch batch, Workspace& workspace) {
    const Config& config = model.config;
    const std::size_t count = num_new_tokens(batch);
    const std::size_t query_width = config.num_attention_heads * config.head_dim;
    const std::size_t kv_width = config.num_key_value_heads * config.head_dim;
    workspace.places.clear();
    const TokenBlock tokens{ensure_capacity(workspace.hidden_states, count, config.hidden_size),
                            ensure_capacity(workspace.qkv, count, query_width + 2 * kv_width),
                            ensure_capacity(workspace.context, count, query_width),
                            {}};
    for (const auto& [new_ids, seq_len, slots, logits_to_keep, given] : batch)
        for (std::size_t t = 0; t < new_ids.size(); ++t) {
            const std::span<Real> row = tokens.hidden_states[workspace.places.size()];
            if (given.inputs_embeds.num_rows > 0)
                std::ranges::copy(given.inputs_embeds[t], row.begin());
            else
                model.embed_tokens.dequantize_row(static_cast<std::size_t>(new_ids[t]), row);
            workspace.places.push_back({seq_len + t, slots.slot(seq_len + t)});
        }
    return {tokens.hidden_states, tokens.qkv, tokens.context, workspace.places};
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

void update_kv_cache(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                     const RotaryTable& rotary_table, KVMemory& memory) {
    const Config& config = model.config;
    const std::size_t head_dim = config.head_dim, num_kv_heads = config.num_key_value_heads;
    const std::size_t query_width = config.num_attention_heads * head_dim;
    const std::size_t kv_width = num_kv_heads * head_dim;
    const QKNorm& qk_norm = model.layers[n].qk_norm;
    for (std::size_t t = 0; t < tokens.places.size(); ++t) {
        const auto [position, slot] = tokens.places[t];
        const std::span<Real> qkv = tokens.qkv[t];
        const std::span<Real> queries = qkv.first(query_width);
        const std::span<Real> keys = qkv.subspan(query_width, kv_width);
        const std::span<Real> values = qkv.subspan(query_width + kv_width);
        apply_qk_norm_and_rope(qk_norm, &QKNormWithWeights::q_weight, rotary_table, position,
                               queries, head_dim);
        apply_qk_norm_and_rope(qk_norm, &QKNormWithWeights::k_weight, rotary_table, position,
                               keys, head_dim);
        for (std::size_t h = 0; h < num_kv_heads; ++h)
            memory.store(n, h, slot, keys.subspan(h * head_dim, head_dim),
                         values.subspan(h * head_dim, head_dim));
    }
}

void split_into_tiles(SequenceBatch batch, std::size_t max_rows,
                      std::vector<AttentionTile>& tiles) {
    tiles.clear();
    std::size_t end_of_sequence = 0;
    for (const auto& [new_ids, seq_len, slots, logits_to_keep, hidden_states] : batch) {
        const std::size_t first_row = end_of_sequence;
        end_of_sequence += new_ids.size();
        const std::size_t num_tiles = ceil_div(new_ids.size(), max_rows);
        for (std::size_t tile = num_tiles; tile-- > 0;) {
            const std::size_t begin = tile * max_rows;
            tiles.push_back({first_row + begin, std::min(max_rows, new_ids.size() - begin),
                             seq_len + begin, slots});
        }
    }
}

void compute_context(const FastModel& model, std::size_t n, std::size_t head,
                     const AttentionTile& tile, const TokenBlock& all, const KVMemory& memory,
                     Workspace::ThreadWorkspace& workspace) {
    const Config& config = model.config;
    const std::size_t head_dim = config.head_dim;
    const std::size_t kv_head =
        head / (config.num_attention_heads / config.num_key_value_heads);
    const std::size_t kv_len = tile.first_position + tile.num_rows;
    const auto [pages, page_size] = tile.slots;
    const CachedRows keys = memory.cached_keys(n, kv_head).paged(pages, page_size, kv_len);
    const CachedRows values = memory.cached_values(n, kv_head).paged(pages, page_size, kv_len);
    const TokenBlock tokens = all.subblock(tile.first_row, tile.num_rows);
    const MatrixView queries = tokens.qkv.columns(head * head_dim, head_dim);
    const MatrixView context = tokens.context.columns(head * head_dim, head_dim);
    if (tile.num_rows == 1)
        decode_attention(queries[0], keys, values, std::span(workspace.scores).first(kv_len),
                         context[0]);
    else
        flash_attention(queries, keys, values, tile.first_position, context, workspace.floats);
}

}  // namespace llm
