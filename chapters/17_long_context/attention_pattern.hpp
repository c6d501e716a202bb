// Chapter 17, file 1 of 8 — How much of the past must a token see?
#pragma once

#include <variant>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// Which keys a query sees, besides the causal mask. A key is never later than its query.
struct FullAttention {};  // all earlier keys, and the query's own
struct SlidingWindow {    // the last "window" keys, the query's own included: Mistral
    std::size_t window = 0;
};
struct ChunkedAttention {  // the keys of the chunk: positions c·n to c·n + n - 1
    std::size_t chunk_size = 0;
};
struct SinksAndWindow {  // the first num_sinks keys and a sliding window: StreamingLLM
    std::size_t num_sinks = 0, window = 0;
};
using AttentionPattern =
    std::variant<FullAttention, SlidingWindow, ChunkedAttention, SinksAndWindow>;

// Does the token at query_position attend to the token at key_position?
bool attends(const AttentionPattern& pattern, Id query_position, Id key_position);

// Added to the attention scores: 0 where a query attends to a key, -inf elsewhere. The keys may
// be in any order, because their positions are given. Throws ValueError if a window or a chunk
// has no tokens, or if the batch sizes differ.
Matrix pattern_mask(const AttentionPattern& pattern,
                    const IdVector& query_positions,  // (T)
                    const IdVector& key_positions);   // (S) -> (T, S)
Tensor4 pattern_mask(const AttentionPattern& pattern,
                     const IdMatrix& query_positions,  // (B, T)
                     const IdMatrix& key_positions);   // (B, S) -> (B, 1, T, S)

// The same for T queries that are the last of S positions (as causal_mask of chapter 01).
// Throws ValueError if T > S.
Matrix pattern_mask(const AttentionPattern& pattern, std::size_t query_len,
                    std::size_t kv_len);  // (T, S)

// The patterns of L layers, of which every full_every-th has full attention: 6 for five local
// layers and then a full one, 0 for none. Source: Hugging Face, configuration_gemma3.py,
// layer_types.
std::vector<AttentionPattern> layer_patterns(std::size_t num_hidden_layers,  // L
                                             const AttentionPattern& local,
                                             std::size_t full_every);

// The receptive field: 1 where the output of token t after all layers depends on the input of
// token s, 0 elsewhere. L layers with a window of W reach L·(W - 1) tokens back.
Matrix receptive_field(const std::vector<AttentionPattern>& patterns,  // L
                       std::size_t seq_len);                           // (T, T)

}  // namespace llm
