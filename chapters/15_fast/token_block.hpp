// Chapter 15, file 8 of 10: functions that prefill and decode share.
#pragma once

#include <span>

#include "chapters/15_fast/run_state.hpp"

namespace llm {

// Hidden states of the T new tokens of a sequence that a caller gives or wants; a view without
// rows: neither.
struct HiddenStateViews {
    ConstMatrixView inputs_embeds = {};  // (T, C): used instead of the rows of embed_tokens
    MatrixView last_hidden_states = {};  // (T, C): receives those after the final norm
};

// The new tokens of one sequence.
struct SequenceTokens {
    std::span<const Id> new_ids;  // (T), at positions seq_len, seq_len + 1, ...
    std::size_t seq_len = 0;      // S: its tokens in the cache
    SlotMapping slots;            // of the cached tokens and the new ones
    std::optional<LogitsToKeep> logits_to_keep = LogitsToKeep::last;  // none: no logits
    HiddenStateViews hidden_states = {};
};
using SequenceBatch = std::span<const SequenceTokens>;
std::size_t num_new_tokens(SequenceBatch batch);

// The activations of adjacent tokens of a batch, as views of the workspace.
struct TokenBlock {
    MatrixView hidden_states;                       // (N, C): the residual stream
    MatrixView qkv;                                 // (N, (H + 2*Hkv)*D)
    MatrixView context;                             // (N, H*D)
    std::span<const Workspace::TokenPlace> places;  // (N)

    TokenBlock subblock(std::size_t begin, std::size_t count) const {
        return {hidden_states.rows(begin, count), qkv.rows(begin, count),
                context.rows(begin, count), places.subspan(begin, count)};
    }
};

// All tokens of a batch, sequence by sequence, with their embeddings as hidden states.
TokenBlock embed(const FastModel& model, SequenceBatch batch, Workspace& workspace);

// A linear layer, by one of the matrix products of weight_matrix.hpp.
using QuantizedMatmul = void (*)(ConstMatrixView inputs, const WeightMatrix& weights,
                                 MatrixView outputs, MatmulWorkspace& workspace, Update update);
void apply_linear(QuantizedMatmul matmul, const FastLinear& linear,
                  ConstMatrixView inputs,  // (N, in)
                  MatrixView outputs,      // (N, out)
                  MatmulWorkspace& workspace, Update update = Update::overwrite);

void apply_norm(const RMSNorm& norm, ConstMatrixView rows,  // (N, C)
                MatrixView normalized);                     // (N, C), may be rows

// Normalizes and rotates the queries and keys of some tokens in layer n, and stores their keys
// and values in the cache.
void update_kv_cache(const FastModel& model, std::size_t n, const TokenBlock& tokens,
                     const RotaryTable& rotary_table, KVMemory& memory);

// Divides the new tokens of each sequence into tiles of at most max_rows queries. Those with
// the most keys are the first ones of their sequence.
void split_into_tiles(SequenceBatch batch, std::size_t max_rows,
                      std::vector<AttentionTile>& tiles);

// Attention of one head and one tile of queries. Each token attends to the keys of its sequence
// up to its own position.
void compute_context(const FastModel& model, std::size_t n, std::size_t head,
                     const AttentionTile& tile, const TokenBlock& all, const KVMemory& memory,
                     Workspace::ThreadWorkspace& workspace);

}  // namespace llm
