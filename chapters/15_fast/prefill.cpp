#include "chapters/15_fast/inference.hpp"
#include "common/system/for_blocks.hpp"

namespace llm {
namespace {

// For a block of tokens, on one thread: norm, fused projection and update of the KV cache.
void compute_qkv(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                 const RotaryTable& rotary_table, KVMemory& memory,
                 Workspace::ThreadWorkspace& workspace) {
    const FastLayer& layer = model.layers[n];
    const MatrixView normalized = ensure_capacity(workspace.normalized, tokens.places.size(),
                                                  tokens.hidden_states.num_columns);
    apply_norm(layer.attention_norm, tokens.hidden_states, normalized);
    apply_linear(matmul_transposed, layer.qkv_proj, normalized, tokens.qkv, workspace.matmul);
    update_kv_cache(model, n, tokens, rotary_table, memory);
}

// For a block of tokens, on one thread: output projection, norm and MLP. The output of one
// linear layer is still in the processor's cache when the next one reads it.
void compute_output_and_mlp(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                            Workspace::ThreadWorkspace& workspace) {
    const FastLayer& layer = model.layers[n];
    const auto [hidden_states, qkv, context, places] = tokens;
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

}  // namespace

MatrixView prefill(const FastModel& model, SequenceBatch batch, KVMemory& memory,
                   Workspace& workspace) {
    const TokenBlock all = embed(model, batch, workspace);
    const std::size_t count = all.places.size(), num_heads = model.config.num_attention_heads;
    std::vector<Workspace::ThreadWorkspace>& of_threads = workspace.workspaces;
    split_into_tiles(batch, tile_size, workspace.tiles);

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        for_blocks(count, [&](std::size_t begin, std::size_t size, std::size_t thread) {
            compute_qkv(model, n, all.subblock(begin, size), workspace.rotary_table, memory,
                        of_threads[thread]);
        });
        parallel_for(
            workspace.tiles.size() * num_heads, [&](std::size_t i, std::size_t thread) {
                compute_context(model, n, i % num_heads, workspace.tiles[i / num_heads], all,
                                memory, of_threads[thread]);
            });
        for_blocks(count, [&](std::size_t begin, std::size_t size, std::size_t thread) {
            compute_output_and_mlp(model, n, all.subblock(begin, size), of_threads[thread]);
        });
    }
    return all.hidden_states;
}

void prefill_head(const FastModel& model, MatrixView hidden_states, MatrixView logits,
                  Workspace& workspace) {
    for_blocks(hidden_states.num_rows,
               [&](std::size_t begin, std::size_t size, std::size_t thread) {
                   const MatrixView rows = hidden_states.rows(begin, size);
                   apply_norm(model.norm, rows, rows);
                   matmul_transposed(rows, model.head(), logits.rows(begin, size),
                                     workspace.workspaces[thread].matmul);
               });
}

}  // namespace llm
