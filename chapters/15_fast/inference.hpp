// Chapter 15, file 9 of 10: prefill and decode of the fast model.
#pragma once

#include <span>

#include "chapters/11_generation/generation.hpp"
#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/token_block.hpp"

namespace llm {

// Adds T new tokens to the sequence of the state and returns logits, (T, V) or (1, V): a view
// of state.logits, valid until the next call. Many tokens are a prefill; one token, or a few,
// are a decode step. Throws ValueError, and leaves the cache as it was, if an id is not in the
// vocabulary, if the tokens exceed the positions of the state, or if hidden states have another
// shape.
ConstMatrixView compute_logits(const FastModel& model,
                               std::span<const Id> new_ids,  // (T)
                               RunState& state,
                               LogitsToKeep logits_to_keep = LogitsToKeep::last,
                               HiddenStateViews hidden_states = {});

// The same for new tokens of several sequences, whose keys and values are in slots of one
// memory: all tokens are multiplied by each weight matrix together. Returns the logits that the
// sequences keep, one after the other. Throws ValueError as above, also if slots do not exist.
ConstMatrixView compute_logits(const FastModel& model, SequenceBatch batch, KVMemory& memory,
                               Workspace& workspace);

// The two cases of compute_logits, without checks: the hidden states after the last layer, and
// the final norm and head of the rows that are kept. A prefill divides the tokens among the
// threads, so each thread reads all weights; a decode step divides the rows of each weight
// matrix, so each weight is read once.
inline constexpr std::size_t max_decode_tokens = 16;
MatrixView prefill(const FastModel& model, SequenceBatch batch, KVMemory& memory,
                   Workspace& workspace);  // -> (N, C)
MatrixView decode(const FastModel& model, SequenceBatch batch, KVMemory& memory,
                  Workspace& workspace);                             // -> (N, C)
void prefill_head(const FastModel& model, MatrixView hidden_states,  // (N, C)
                  MatrixView logits,                                 // (N, V)
                  Workspace& workspace);
void decode_head(const FastModel& model, MatrixView hidden_states,  // (N, C)
                 MatrixView logits,                                 // (N, V)
                 Workspace& workspace);

// A copy of a row of logits, for the functions of chapter 11.
Vector to_vector(std::span<const Real> logits);  // (V)

// A sequence and its cache for chapter 11's generate(). The model must outlive it.
struct FastSequence final : SequenceCache {
    const FastModel& model;
    RunState state;
    Matrix last_hidden_states;  // (P, C) of cached tokens, after the final norm; or empty

    FastSequence(const FastModel& fast_model, RunState run_state)
        : model(fast_model), state(std::move(run_state)) {}
    Vector append(std::span<const Id> new_ids) override;
    // compute_logits, with other embeddings unless their view is empty. After
    // keep_hidden_states it also stores the hidden states of the new tokens.
    void keep_hidden_states();
    ConstMatrixView compute(std::span<const Id> new_ids,  // (T) -> (T, V) or (1, V)
                            LogitsToKeep logits_to_keep,
                            ConstMatrixView inputs_embeds = {});  // (T, C)
    std::size_t crop(std::size_t count) override;
};
CachedSequence make_cached_sequence(const FastModel& model, std::size_t num_positions,  // P
                                    DType cache_dtype = DType::float32);

// Greedy decoding: appends the most likely token until there are max_new_tokens more, or
// max_position_embeddings tokens, or until an EOS token follows. Throws as compute_logits.
std::vector<Id> generate_greedily(const FastModel& model, std::vector<Id> ids,
                                  std::size_t max_new_tokens,
                                  const std::vector<Id>& eos_token_ids,
                                  DType cache_dtype = DType::float32);

}  // namespace llm
