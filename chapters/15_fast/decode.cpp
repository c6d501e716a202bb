#include "chapters/15_fast/inference.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// parallel_for, or a loop on this thread if it takes longer to start the others than to compute
// so few elements.
template <class Function>
void parallel_for_if_large(std::size_t count, std::size_t num_elements,
                           const Function& function) {
    if (num_elements < 16384)
        for (std::size_t i = 0; i < count; ++i) function(i, 0);
    else
        parallel_for(count, function);
}

// The attention of the new tokens; their heads are divided among the threads.
void compute_context_of_tokens(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                               const KVMemory& memory, Workspace& workspace) {
    const std::size_t num_heads = model.config.num_attention_heads;
    const std::vector<AttentionTile>& tiles = workspace.tiles;
    std::size_t num_keys = 0;
    for (const AttentionTile& tile : tiles) num_keys += tile.first_position + tile.num_rows;
    parallel_for_if_large(tiles.size() * num_heads,
                          num_keys * num_heads * model.config.head_dim,
                          [&](std::size_t i, std::size_t thread) {
                              compute_context(model, n, i % num_heads, tiles[i / num_heads],
                                              tokens, memory, workspace.workspaces[thread]);
                          });
}

}  // namespace

MatrixView decode(const FastModel& model, SequenceBatch batch, KVMemory& memory,
                  Workspace& workspace) {
    const TokenBlock tokens = embed(model, batch, workspace);
    const auto [hidden_states, qkv, context, places] = tokens;
    const std::size_t num_tokens = places.size(), width = model.config.intermediate_size;
    Workspace::ThreadWorkspace& own = workspace.workspaces[0];
    const MatrixView normalized =
        ensure_capacity(own.normalized, num_tokens, hidden_states.num_columns);
    const MatrixView gate_up = ensure_capacity(own.gate_up, num_tokens, 2 * width);
    split_into_tiles(batch, 1, workspace.tiles);

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const FastLayer& layer = model.layers[n];
        apply_norm(layer.attention_norm, hidden_states, normalized);
        apply_linear(matmul_by_rows, layer.qkv_proj, normalized, qkv, own.matmul);
        update_kv_cache(model, n, tokens, workspace.rotary_table, memory);
        compute_context_of_tokens(model, n, tokens, memory, workspace);
        apply_linear(matmul_by_rows, layer.o_proj, context, hidden_states, own.matmul,
                     Update::accumulate);

        apply_norm(layer.ffn_norm, hidden_states, normalized);
        apply_linear(matmul_by_rows, layer.gate_up_proj, normalized, gate_up, own.matmul);
        parallel_for_if_large(num_tokens, num_tokens * width, [&](std::size_t t, std::size_t) {
            silu_and_mul(gate_up[t].first(width), gate_up[t].subspan(width));
        });
        apply_linear(matmul_by_rows, layer.down_proj, gate_up.columns(0, width), hidden_states,
                     own.matmul, Update::accumulate);
    }
    return hidden_states;
}

void decode_head(const FastModel& model, MatrixView hidden_states, MatrixView logits,
                 Workspace& workspace) {
    apply_norm(model.norm, hidden_states, hidden_states);
    matmul_by_rows(hidden_states, model.head(), logits, workspace.workspaces[0].matmul);
}

}  // namespace llm
