#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/15_fast/token_block.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// The attention of the new tokens; their heads are divided among the threads. Each token
// attends to the keys up to its own position.
void compute_context_of_tokens(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                               RunState& state) {
    const std::size_t head_dim = model.config.head_dim;
    const std::size_t num_heads = model.config.num_attention_heads;
    const std::size_t num_key_value_groups = num_heads / model.config.num_key_value_heads;
    const std::size_t num_tokens = tokens.hidden_states.num_rows;
    const auto compute_head = [&](std::size_t i, std::size_t thread) {
        const std::size_t t = i / num_heads, head = i % num_heads;
        const std::size_t kv_head = head / num_key_value_groups;
        const std::size_t kv_len = tokens.first_position + t + 1;
        decode_attention(tokens.qkv[t].subspan(head * head_dim, head_dim),
                         state.cached_keys(n, kv_head).first(kv_len),
                         state.cached_values(n, kv_head).first(kv_len),
                         std::span(state.workspaces[thread].scores).first(kv_len),
                         tokens.context[t].subspan(head * head_dim, head_dim));
    };
    // To start other threads takes longer than the attention of a few keys.
    const std::size_t num_heads_of_all = num_tokens * num_heads;
    if (num_heads_of_all * head_dim * (tokens.first_position + num_tokens) < 16384)
        for (std::size_t i = 0; i < num_heads_of_all; ++i) compute_head(i, 0);
    else
        parallel_for(num_heads_of_all, compute_head);
}

}  // namespace

void decode(const FastModel& model, std::span<const Id> new_ids, RunState& state,
            LogitsToKeep logits_to_keep) {
    const std::size_t num_tokens = new_ids.size(), width = model.config.intermediate_size;
    const TokenBlock tokens = make_token_block(state, model.config, num_tokens);
    const auto [hidden_states, qkv, context, first_position] = tokens;
    RunState::ThreadWorkspace& workspace = state.workspaces[0];
    const MatrixView normalized =
        ensure_capacity(workspace.normalized, num_tokens, hidden_states.num_columns);
    const MatrixView gate_up = ensure_capacity(workspace.gate_up, num_tokens, 2 * width);
    embed(model, new_ids, hidden_states);

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const FastLayer& layer = model.layers[n];
        apply_norm(layer.attention_norm, hidden_states, normalized);
        apply_linear(matmul_by_rows, layer.qkv_proj, normalized, qkv, workspace.matmul);
        for (std::size_t t = 0; t < num_tokens; ++t)
            update_kv_cache(model, n, qkv[t], first_position + t, state);
        compute_context_of_tokens(model, n, tokens, state);
        apply_linear(matmul_by_rows, layer.o_proj, context, hidden_states, workspace.matmul,
                     Update::accumulate);

        apply_norm(layer.ffn_norm, hidden_states, normalized);
        apply_linear(matmul_by_rows, layer.gate_up_proj, normalized, gate_up, workspace.matmul);
        for (std::size_t t = 0; t < num_tokens; ++t)
            silu_and_mul(gate_up[t].first(width), gate_up[t].subspan(width));
        apply_linear(matmul_by_rows, layer.down_proj, gate_up.columns(0, width), hidden_states,
                     workspace.matmul, Update::accumulate);
    }
    const bool only_last = logits_to_keep == LogitsToKeep::last;
    compute_logits_of(model, only_last ? hidden_states.rows(num_tokens - 1, 1) : hidden_states,
                      state);
}

}  // namespace llm
