#include "chapters/15_fast/run_state.hpp"

#include "chapters/04_rope/rope_scaling.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// One head of one layer of the cache, (L, Hkv, P, D) -> (P, D).
MatrixView head_view(Tensor4& cache, std::size_t layer, std::size_t head) {
    const std::size_t num_positions = cache.shape(2), head_dim = cache.shape(3);
    return {&cache(layer, head, 0, 0), num_positions, head_dim, head_dim};
}

}  // namespace

MatrixView RunState::cached_keys(std::size_t layer, std::size_t kv_head) {
    return head_view(keys, layer, kv_head);
}
MatrixView RunState::cached_values(std::size_t layer, std::size_t kv_head) {
    return head_view(values, layer, kv_head);
}

std::uint64_t RunState::nbytes() const {
    std::uint64_t elements = rotary_table.cos.size() + rotary_table.sin.size() + keys.size() +
                             values.size() + hidden_states.size() + qkv.size() +
                             context.size() + logits.size();
    for (const ThreadWorkspace& workspace : workspaces)
        elements +=
            workspace.normalized.size() + workspace.gate_up.size() + workspace.scores.size();
    std::uint64_t bytes = elements * sizeof(Real);
    for (const ThreadWorkspace& workspace : workspaces) bytes += workspace.matmul.nbytes();
    return bytes;
}

RunState make_run_state(const FastModel& model, std::size_t num_positions) {
    const Config& config = model.config;
    require(num_positions > 0 && num_positions <= config.max_position_embeddings,
            "fast model: a run state for {} tokens, but max_position_embeddings is {}",
            num_positions, config.max_position_embeddings);
    RunState state;
    state.rotary_table = make_rotary_table(rope_frequencies(config), num_positions);
    state.keys = xt::zeros<Real>(
        {config.num_hidden_layers, config.num_key_value_heads, num_positions, config.head_dim});
    state.values = state.keys;
    state.workspaces.resize(num_threads());
    for (RunState::ThreadWorkspace& workspace : state.workspaces)
        workspace.scores.resize(num_positions);
    return state;
}

MatrixView ensure_capacity(Matrix& workspace, std::size_t num_rows, std::size_t num_columns) {
    if (workspace.shape(0) < num_rows || workspace.shape(1) != num_columns)
        workspace = xt::zeros<Real>({num_rows, num_columns});
    return view_of(workspace).rows(0, num_rows);
}

}  // namespace llm
