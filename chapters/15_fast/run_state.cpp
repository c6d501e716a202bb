#include "chapters/15_fast/run_state.hpp"

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// One head of one layer of a cache, (L, Hkv, P, D) -> (P, D).
template <class Element>
BasicMatrixView<const Element> head_view(const xt::xtensor<Element, 4>& cache,
                                         std::size_t layer, std::size_t head) {
    const std::size_t num_positions = cache.shape(2), head_dim = cache.shape(3);
    return {&cache(layer, head, 0, 0), num_positions, head_dim, head_dim};
}

void store_float16(std::span<const Real> values, Half* destination) {
    require(to_half(values, {destination, values.size()}) < 65520,
            "cache: a key or value exceeds 65504, the range of float16; use a float32 cache");
}

}  // namespace

std::array<std::size_t, 4> KVMemory::cache_shape() const {
    return has_float16_cache() ? half_keys.shape() : keys.shape();
}
CachedRows KVMemory::cached_keys(std::size_t layer, std::size_t kv_head) const {
    if (has_float16_cache()) return head_view(half_keys, layer, kv_head);
    return head_view(keys, layer, kv_head);
}
CachedRows KVMemory::cached_values(std::size_t layer, std::size_t kv_head) const {
    if (has_float16_cache()) return head_view(half_values, layer, kv_head);
    return head_view(values, layer, kv_head);
}

void KVMemory::store(std::size_t layer, std::size_t kv_head, std::size_t slot,
                     std::span<const Real> key, std::span<const Real> value) {
    if (has_float16_cache()) {
        store_float16(key, &half_keys(layer, kv_head, slot, 0));
        store_float16(value, &half_values(layer, kv_head, slot, 0));
    } else {
        std::ranges::copy(key, &keys(layer, kv_head, slot, 0));
        std::ranges::copy(value, &values(layer, kv_head, slot, 0));
    }
}

std::uint64_t RunState::nbytes() const {
    std::uint64_t elements = rotary_table.cos.size() + rotary_table.sin.size() + keys.size() +
                             values.size() + hidden_states.size() + qkv.size() +
                             context.size() + logits.size();
    for (const ThreadWorkspace& workspace : workspaces)
        elements += workspace.normalized.size() + workspace.gate_up.size() +
                    workspace.scores.size() + workspace.floats.size();
    std::uint64_t bytes =
        elements * sizeof(Real) + (half_keys.size() + half_values.size()) * sizeof(Half);
    for (const ThreadWorkspace& workspace : workspaces) bytes += workspace.matmul.nbytes();
    return bytes;
}

KVMemory make_kv_memory(const Config& config, std::size_t num_slots, DType cache_dtype) {
    require(num_slots > 0, "fast model: a cache needs at least one slot");
    require(cache_dtype == DType::float32 || cache_dtype == DType::float16,
            "fast model: a cache is float32 or float16, not {}", to_text(cache_dtype));
    KVMemory memory;
    const std::array<std::size_t, 4> shape = {
        config.num_hidden_layers, config.num_key_value_heads, num_slots, config.head_dim};
    if (cache_dtype == DType::float16)
        memory.half_keys = memory.half_values = xt::xtensor<Half, 4>(shape, Half(0));
    else
        memory.keys = memory.values = xt::zeros<Real>(shape);
    return memory;
}

Workspace make_workspace(const Config& config, std::size_t num_positions) {
    require(num_positions > 0 && num_positions <= config.max_position_embeddings,
            "fast model: a run state for {} tokens, but max_position_embeddings is {}",
            num_positions, config.max_position_embeddings);
    Workspace workspace;
    workspace.rotary_table = make_rotary_table(rope_frequencies(config), num_positions);
    workspace.workspaces.resize(num_threads());
    for (Workspace::ThreadWorkspace& of_thread : workspace.workspaces) {
        of_thread.scores.resize(num_positions);
        of_thread.floats.resize(tile_size * config.head_dim);
    }
    return workspace;
}

RunState make_run_state(const FastModel& model, std::size_t num_positions, DType cache_dtype) {
    Workspace workspace = make_workspace(model.config, num_positions);
    return {make_kv_memory(model.config, num_positions, cache_dtype), std::move(workspace)};
}

MatrixView ensure_capacity(Matrix& workspace, std::size_t num_rows, std::size_t num_columns) {
    if (workspace.shape(0) < num_rows || workspace.shape(1) != num_columns)
        workspace = xt::zeros<Real>({num_rows, num_columns});
    return view_of(workspace).rows(0, num_rows);
}

}  // namespace llm
