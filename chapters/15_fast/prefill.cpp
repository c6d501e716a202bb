#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/15_fast/token_block.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// The largest number of tokens that a thread multiplies by a weight matrix at once.
constexpr std::size_t max_block_size = 256;

// For a block of tokens, on one thread: norm, fused projection and update of the KV cache.
void compute_qkv(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                 RunState& state, RunState::ThreadWorkspace& workspace) {
    const FastLayer& layer = model.layers[n];
    const auto [hidden_states, qkv, context, first_position] = tokens;
    const std::size_t count = hidden_states.num_rows;
    const MatrixView normalized =
        ensure_capacity(workspace.normalized, count, hidden_states.num_columns);
    apply_norm(layer.attention_norm, hidden_states, normalized);
    apply_linear(matmul_transposed, layer.qkv_proj, normalized, qkv, workspace.matmul);
    for (std::size_t t = 0; t < count; ++t)
        update_kv_cache(model, n, qkv[t], first_position + t, state);
}

// Attention of one head and one tile of queries, on one thread.
void compute_context(const FastModel& model, std::size_t n, std::size_t head, std::size_t tile,
                     const TokenBlock& all, RunState& state,
                     RunState::ThreadWorkspace& workspace) {
    const Config& config = model.config;
    const std::size_t head_dim = config.head_dim;
    const std::size_t kv_head =
        head / (config.num_attention_heads / config.num_key_value_heads);
    const std::size_t begin = tile * tile_size;
    const std::size_t count = std::min(tile_size, all.hidden_states.num_rows - begin);
    const TokenBlock tokens = all.subblock(begin, count);
    flash_attention(tokens.qkv.columns(head * head_dim, head_dim),
                    state.cached_keys(n, kv_head), state.cached_values(n, kv_head),
                    tokens.first_position, tokens.context.columns(head * head_dim, head_dim),
                    workspace.floats);
}

// For a block of tokens, on one thread: output projection, norm and MLP. The output of one
// linear layer is still in the processor's cache when the next one reads it.
void compute_output_and_mlp(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                            RunState::ThreadWorkspace& workspace) {
    const FastLayer& layer = model.layers[n];
    const auto [hidden_states, qkv, context, first_position] = tokens;
    const std::size_t count = hidden_states.num_rows, width = model.config.intermediate_size;
    const MatrixView normalized =
        ensure_capacity(workspace.normalized, count, hidden_states.num_columns);
    const MatrixView gate_up = ensure_capacity(workspace.gate_up, count, 2 * width);

    apply_linear(matmul_transposed, layer.o_proj, context, hidden_states, workspace.matmul,
                 Update::accumulate);
    apply_norm(layer.ffn_norm, hidden_states, normalized);
    apply_linear(matmul_transposed, layer.gate_up_proj, normalized, gate_up, workspace.matmul);
    for (std::size_t t = 0; t < count; ++t)
        silu_and_mul(gate_up[t].first(width), gate_up[t].subspan(width));
    apply_linear(matmul_transposed, layer.down_proj, gate_up.columns(0, width), hidden_states,
                 workspace.matmul, Update::accumulate);
}

// For a block of tokens, on one thread: final norm and head.
void compute_all_logits(const FastModel& model, const TokenBlock& tokens, RunState& state,
                        RunState::ThreadWorkspace& workspace) {
    const MatrixView hidden_states = tokens.hidden_states;
    apply_norm(model.norm, hidden_states, hidden_states);
    const std::size_t begin = tokens.first_position - state.seq_len;
    matmul_transposed(hidden_states, model.head(),
                      view_of(state.logits).rows(begin, hidden_states.num_rows),
                      workspace.matmul);
}

// One block per thread, or several if a block would exceed max_block_size.
std::vector<TokenBlock> split_into_blocks(const TokenBlock& all) {
    const std::size_t count = all.hidden_states.num_rows;
    const std::size_t in_one_round = num_threads() * max_block_size;
    const std::size_t num_rounds = (count + in_one_round - 1) / in_one_round;
    const std::size_t num_blocks = std::min(count, num_rounds * num_threads());
    std::vector<TokenBlock> blocks;
    for (std::size_t block = 0; block < num_blocks; ++block) {
        const std::size_t begin = block * count / num_blocks;
        blocks.push_back(all.subblock(begin, (block + 1) * count / num_blocks - begin));
    }
    return blocks;
}

}  // namespace

void prefill(const FastModel& model, std::span<const Id> new_ids, RunState& state,
             LogitsToKeep logits_to_keep) {
    const TokenBlock all = make_token_block(state, model.config, new_ids.size());
    embed(model, new_ids, all.hidden_states);
    const std::vector<TokenBlock> blocks = split_into_blocks(all);
    const std::size_t num_tiles = (new_ids.size() + tile_size - 1) / tile_size;
    const std::size_t num_heads = model.config.num_attention_heads;

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        parallel_for(blocks.size(), [&](std::size_t i, std::size_t thread) {
            compute_qkv(model, n, blocks[i], state, state.workspaces[thread]);
        });
        // The last tiles of queries have the most keys and take longest: start with them.
        parallel_for(num_tiles * num_heads, [&](std::size_t i, std::size_t thread) {
            compute_context(model, n, i % num_heads, num_tiles - 1 - i / num_heads, all, state,
                            state.workspaces[thread]);
        });
        parallel_for(blocks.size(), [&](std::size_t i, std::size_t thread) {
            compute_output_and_mlp(model, n, blocks[i], state.workspaces[thread]);
        });
    }
    if (logits_to_keep == LogitsToKeep::last) {
        compute_logits_of(model, all.hidden_states.rows(new_ids.size() - 1, 1), state);
        return;
    }
    parallel_for(blocks.size(), [&](std::size_t i, std::size_t thread) {
        compute_all_logits(model, blocks[i], state, state.workspaces[thread]);
    });
}

}  // namespace llm
