// Chapter 15, file 6 of 10: the memory of a run: the KV cache and a workspace for activations.
#pragma once

#include "chapters/15_fast/cached_rows.hpp"
#include "chapters/15_fast/fast_model.hpp"

namespace llm {

// All memory that inference on one sequence needs, allocated once and reused by every call. The
// KV cache is allocated for P positions. The workspace grows with the largest call: a decode
// step allocates no memory after the first two, a prefill none after each thread has computed a
// block of that size. Source: llama2.c, run.c, RunState.
struct RunState {
    RotaryTable rotary_table;  // (P, D/2)

    // The KV cache, in one of two types; the tensors of the other one are empty.
    Tensor4 keys, values;                         // (L, Hkv, P, D)
    xt::xtensor<Half, 4> half_keys, half_values;  // (L, Hkv, P, D)
    std::size_t seq_len = 0;  // S: the tokens in the cache; 0 starts a new sequence

    // Activations of the N tokens of a call.
    Matrix hidden_states;  // (N, C): the residual stream
    Matrix qkv;            // (N, (H + 2*Hkv)*D)
    Matrix context;        // (N, H*D)
    Matrix logits;         // (N, V), or (1, V) of the last token

    // Activations of the tokens that one thread computes.
    struct ThreadWorkspace {
        Matrix normalized;           // (N, C)
        Matrix gate_up;              // (N, 2F)
        MatmulWorkspace matmul;      // of matrix products
        AlignedVector<Real> scores;  // (P), of one query
        AlignedVector<Real> floats;  // (tile_size * D), of a float16 cache
    };
    std::vector<ThreadWorkspace> workspaces;  // one per thread

    bool has_float16_cache() const { return half_keys.size() > 0; }
    std::array<std::size_t, 4> cache_shape() const;
    CachedRows cached_keys(std::size_t layer, std::size_t kv_head) const;    // (P, D)
    CachedRows cached_values(std::size_t layer, std::size_t kv_head) const;  // (P, D)
    // Throws ValueError if the cache is float16 and an element exceeds its range.
    void store(std::size_t layer, std::size_t kv_head, std::size_t position,
               std::span<const Real> key,     // (D)
               std::span<const Real> value);  // (D)
    std::uint64_t nbytes() const;
};

// The cache is float32 or float16, as in llama.cpp. Throws ValueError if it is to have another
// type, or if P is 0 or exceeds max_position_embeddings.
RunState make_run_state(const FastModel& model, std::size_t num_positions,  // P
                        DType cache_dtype = DType::float32);

// Returns a view of the first num_rows rows of a workspace. Reallocates the workspace if it has
// fewer rows or another number of columns.
MatrixView ensure_capacity(Matrix& workspace, std::size_t num_rows, std::size_t num_columns);

}  // namespace llm
