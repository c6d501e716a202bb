// Chapter 15, file 6 of 10: the memory of a run: the KV cache and a workspace for activations.
#pragma once

#include "chapters/15_fast/cached_rows.hpp"
#include "chapters/15_fast/fast_model.hpp"

namespace llm {

// The keys and values of all layers, in P slots of one token each. They have one of two types;
// the tensors of the other one are empty.
struct KVMemory {
    Tensor4 keys, values;                         // (L, Hkv, P, D)
    xt::xtensor<Half, 4> half_keys, half_values;  // (L, Hkv, P, D)

    bool has_float16_cache() const { return half_keys.size() > 0; }
    std::array<std::size_t, 4> cache_shape() const;
    CachedRows cached_keys(std::size_t layer, std::size_t kv_head) const;    // (P, D)
    CachedRows cached_values(std::size_t layer, std::size_t kv_head) const;  // (P, D)
    // Throws ValueError if the cache is float16 and an element exceeds its range.
    void store(std::size_t layer, std::size_t kv_head, std::size_t slot,
               std::span<const Real> key,     // (D)
               std::span<const Real> value);  // (D)
};

// The slots of a sequence: position p is in slot pages[p / page_size] * page_size +
// p % page_size. A cache that is allocated for one sequence is a single page.
struct SlotMapping {
    std::span<const std::size_t> pages;
    std::size_t page_size = 0;

    std::size_t num_positions() const { return pages.size() * page_size; }
    std::size_t slot(std::size_t position) const {
        return pages[position / page_size] * page_size + position % page_size;
    }
};

// Some adjacent new tokens of one sequence, whose attention is computed together.
struct AttentionTile {
    std::size_t first_row, num_rows;  // of the N tokens of a call
    std::size_t first_position;
    SlotMapping slots;
};

// Activations of the N tokens of a call. It grows with the largest call: a decode step
// allocates no memory after the first two, a prefill none after each thread has computed a
// block of that size. Source: llama2.c, run.c, RunState.
struct Workspace {
    struct TokenPlace {
        std::size_t position, slot;
    };
    // Activations of the tokens that one thread computes.
    struct ThreadWorkspace {
        Matrix normalized;           // (N, C)
        Matrix gate_up;              // (N, 2F)
        MatmulWorkspace matmul;      // of matrix products
        AlignedVector<Real> scores;  // (P), of one query
        AlignedVector<Real> floats;  // (tile_size * D), of keys or values
    };

    RotaryTable rotary_table;        // (P, D/2)
    Matrix hidden_states;            // (N, C): the residual stream
    Matrix qkv;                      // (N, (H + 2*Hkv)*D)
    Matrix context;                  // (N, H*D)
    Matrix logits;                   // (N, V), or the rows that are kept
    std::vector<TokenPlace> places;  // (N)
    std::vector<AttentionTile> tiles;
    std::vector<ThreadWorkspace> workspaces;  // one per thread
};

// All memory that inference on one sequence needs, allocated once and reused by every call. The
// KV cache is allocated for P positions.
struct RunState : KVMemory, Workspace {
    std::size_t seq_len = 0;  // S: the tokens in the cache; 0 starts a new sequence

    std::uint64_t nbytes() const;
};

// The cache is float32 or float16, as in llama.cpp. They throw ValueError if it is to have
// another type, or if P is 0 or the positions exceed max_position_embeddings.
RunState make_run_state(const FastModel& model, std::size_t num_positions,  // P
                        DType cache_dtype = DType::float32);
KVMemory make_kv_memory(const Config& config, std::size_t num_slots,  // P
                        DType cache_dtype = DType::float32);
Workspace make_workspace(const Config& config, std::size_t num_positions);  // P

// Returns a view of the first num_rows rows of a workspace. Reallocates the workspace if it has
// fewer rows or another number of columns.
MatrixView ensure_capacity(Matrix& workspace, std::size_t num_rows, std::size_t num_columns);

}  // namespace llm
