// Chapter 15, file 8 of 10: functions that prefill and decode share.
#pragma once

#include <span>

#include "chapters/15_fast/run_state.hpp"

namespace llm {

// The activations of adjacent tokens, as views of the run state.
struct TokenBlock {
    MatrixView hidden_states;    // (N, C): the residual stream
    MatrixView qkv;              // (N, (H + 2*Hkv)*D)
    MatrixView context;          // (N, H*D)
    std::size_t first_position;  // of its first token

    TokenBlock subblock(std::size_t begin, std::size_t count) const {
        return {hidden_states.rows(begin, count), qkv.rows(begin, count),
                context.rows(begin, count), first_position + begin};
    }
};

TokenBlock make_token_block(RunState& state, const Config& config, std::size_t count);  // N

// The embeddings of the new tokens.
void embed(const FastModel& model, std::span<const Id> new_ids, MatrixView hidden_states);

// A linear layer, by one of the matrix products of weight_matrix.hpp.
using QuantizedMatmul = void (*)(ConstMatrixView inputs, const WeightMatrix& weights,
                                 MatrixView outputs, MatmulWorkspace& workspace, Update update);
void apply_linear(QuantizedMatmul matmul, const FastLinear& linear,
                  ConstMatrixView inputs,  // (N, in)
                  MatrixView outputs,      // (N, out)
                  MatmulWorkspace& workspace, Update update = Update::overwrite);

void apply_norm(const RMSNorm& norm, ConstMatrixView rows,  // (N, C)
                MatrixView normalized);                     // (N, C), may be rows

// Normalizes and rotates the queries and keys of one token in layer n, and stores its keys and
// values in the cache.
void update_kv_cache(const FastModel& model, std::size_t n,
                     std::span<Real> qkv,  // ((H + 2*Hkv)*D)
                     std::size_t position, RunState& state);

// Final norm and head of one token or a few, on all threads, into the first rows of the logits.
void compute_logits_of(const FastModel& model, MatrixView hidden_states,  // (N, C)
                       RunState& state);

}  // namespace llm
